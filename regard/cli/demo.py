"""The tour: generate a corpus of dates, times, money and quantities in English and French, train a translator on it in
about a minute and a half on two cores, and look at the result. Then the ready-made models, where they are installed,
translate, judge and compare real sentences, and a page is written that looks into the translation.

Training uses an ordinary recipe, which is written beside the corpus. All files are in one folder (--out), which can be
deleted.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import DeviceOption
from regard.cli.program_name import program_name
from regard.disk import check_path_is_utf8, convert_write_errors
from regard.errors import ConfigError
from regard.progress import console, print_message

if TYPE_CHECKING:
    from torch import Tensor

    from regard.api import Translator

RECIPE: dict[str, dict[str, Any]] = {
    "task": {"name": "translate", "source_lang": "en", "target_lang": "fr", "label_smoothing": 0.0},
    "tokenizer": {"vocabulary": 1024},
    "model": {"preset": "tiny", "dropout": 0.0},
    "train": {
        "steps": 800,
        "batch_tokens": 1024,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup": 100,
        "validate_every": 200,
        "log_every": 10,
        "average": 1,
    },
}

TRAIN_PAIRS_PER_TEST_PAIR = 40
"""Training pairs for each test pair."""


def demo(
    out: Annotated[str, typer.Option(help="Folder for the corpus, the model and the figures.")] = "demo",
    pairs: Annotated[int, typer.Option(min=1000, help="Sentence pairs to train on.")] = 40_000,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = RECIPE["train"]["steps"],
    device: DeviceOption = "auto",
) -> None:
    import regard
    from regard.cli.training_display import train_and_display
    from regard.demo.ready_made_tour import show_ready_made

    folder = Path(out)
    check_path_is_utf8(folder)
    if (folder / "run").exists():
        raise ConfigError(
            f"{folder / 'run'}: already holds a demo; delete the folder {folder}, or choose another --out"
        )
    with convert_write_errors(folder):
        recipe = _write_corpus_and_recipe(folder, pairs, steps)
    run, where = shlex.quote(str(folder / "run")), "" if device == "auto" else f" --device {device}"
    print_message(f"2. training, the same as: {program_name()} train {shlex.quote(str(recipe))} --out {run}{where}")
    train_and_display(regard.train(recipe, out=folder / "run", device=device), device)
    model = regard.Translator.load(folder / "run", device=device)
    print_message(f"\n3. evaluation on {pairs // TRAIN_PAIRS_PER_TEST_PAIR:,} unseen sentences")
    scores = model.evaluate([f"{folder}/test.en", f"{folder}/test.fr"], beam=1)
    print_message(f"   {scores['exact']:.1%} translated exactly, BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}")
    print_message(f"   {scores['bleu_signature']}\n")
    _show_translations(model, folder)
    show_ready_made(folder, device)
    print_message(_NEXT_STEPS.format(regard=program_name(), folder=shlex.quote(str(folder))))


def _write_corpus_and_recipe(folder: Path, n_pairs: int, steps: int) -> Path:
    """Write the corpus, and the recipe that trains on it; return the path of the recipe."""
    from regard import config
    from regard.demo import cldr_corpus as cldr

    print_message(
        "1. a corpus: dates, times, durations, money and quantities, in English and in French (from CLDR, by Babel)"
    )
    n_test = n_pairs // TRAIN_PAIRS_PER_TEST_PAIR
    cldr.write_corpus(folder, n_pairs, n_test)
    print_message(f"   {n_pairs:,} pairs in {folder}/train.en and train.fr, {n_test:,} more in test.en and test.fr\n")
    data = {"train": (f"{folder}/train.en", f"{folder}/train.fr")}
    tables = {"task": RECIPE["task"], "data": data} | RECIPE | {"train": RECIPE["train"] | {"steps": steps}}
    recipe = folder / "recipe.toml"
    recipe.write_text(config.dump(tables), encoding="utf-8")
    return recipe


def _show_translations(model: Translator, folder: Path) -> None:
    """Print a table of translations, and draw the cross-attention of one of them."""
    from rich.markup import escape
    from rich.table import Table

    from regard.text.files import read_lines

    sources, targets = list(read_lines(folder / "test.en")), list(read_lines(folder / "test.fr"))
    table = Table("English", "French, by the model", "")
    for source, target, best in zip(sources[:12], targets, model.translate(sources[:12]), strict=False):
        verdict = "exact" if best[0].text == target else f"expected {target}"
        table.add_row(*map(escape, (source, best[0].text, verdict)))
    console.print(table)
    figure = _draw_clearest_alignment(
        model, [source for source in sources[:200] if len(source.split()) in range(5, 9)][:50], folder
    )
    print_message(f"4. figures: {folder}/run/curve.png (learning curve), {figure} (word alignment, the clearest of 50)")


def _draw_clearest_alignment(model: Translator, sources: list[str], folder: Path) -> Path:
    """Draw the cross-attention between words of the translation whose word alignment is the clearest."""
    from regard.look.render.figures import draw_heat_map
    from regard.predict.word_alignment import normalise_word_attention

    tokenizers, maps = model.task.tokenizers, []
    for source, (best,) in zip(sources, model.translate(sources, attention=True), strict=True):
        assert best.attention is not None
        target = tokenizers.target.words(best.ids[:-1])
        words = target, tokenizers.source.words(tokenizers.source.encode(source))
        maps.append((normalise_word_attention(best.attention, *words), words, f"{source}\n{best.text}"))
    weights, words, title = max(maps, key=lambda each: _alignment_confidence(each[0]))
    rows, columns = ([word.text for word in side] for side in words)
    path = folder / "alignment.png"
    with convert_write_errors(path):
        return draw_heat_map(weights, rows, columns, title=title, label="fraction of each source word", path=path)


def _alignment_confidence(weights: Tensor) -> float:
    """Return the mean of the largest weight of each source word; 0.0 if there are fewer target words."""
    return float(weights.amax(0).mean()) if len(weights) >= weights.shape[1] > 0 else 0.0


_NEXT_STEPS = """
what to try next:
    {regard} translate {folder}/run "Friday, March 14, 2025"
    {regard} translate {folder}/run "12 kilometers per hour" --n-best 3
    {regard} translate {folder}/run --json "5 minutes" | python3 -m json.tool
    {regard} evaluate {folder}/run {folder}/test.en {folder}/test.fr
    {regard} info {folder}/run
your own text, one sentence a line; everything is chosen from the amount of data:
    {regard} train translate train.en train.fr --out runs/mine"""
