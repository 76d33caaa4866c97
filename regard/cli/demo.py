"""The tour: make a corpus of dates, times, money and quantities in English and French, train a translator on it in
about a minute and a half on two cores, and look at the result.

The training is that of any recipe, which it writes down and names. Everything lands in one folder (--out), which can
be deleted.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device
from regard.cli.program import program
from regard.errors import ConfigError
from regard.progress import console, say

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

ONE_TO_TEST = 40
"""Pairs to train on for each that is held out."""


def demo(
    out: Annotated[str, typer.Option(help="Where to put the corpus, the model and the pictures.")] = "demo",
    pairs: Annotated[int, typer.Option(min=1000, help="Sentences to train on.")] = 40_000,
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = RECIPE["train"]["steps"],
    device: Device = "auto",
) -> None:
    import regard
    from regard.cli.watch import watch

    folder = Path(out)
    if (folder / "run").exists():
        raise ConfigError(
            f"{folder / 'run'}: a demo is already there; delete the folder {folder}, or choose another --out"
        )
    recipe = _write(folder, pairs, steps)
    run, where = shlex.quote(str(folder / "run")), "" if device == "auto" else f" --device {device}"
    say(f"2. training, as by: {program()} train {shlex.quote(str(recipe))} --out {run}{where}")
    watch(regard.train(recipe, out=folder / "run", device=device), device)
    model = regard.load(folder / "run", device=device)
    say(f"\n3. the {pairs // ONE_TO_TEST:,} sentences it has never seen")
    scores = model.evaluate([f"{folder}/test.en", f"{folder}/test.fr"], beam=1)
    say(f"   {scores['exact']:.1%} translated exactly, BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}")
    say(f"   {scores['bleu_signature']}\n")
    _show(model, folder)
    say(_NEXT.format(regard=program(), folder=shlex.quote(str(folder))))


def _write(folder: Path, pairs: int, steps: int) -> Path:
    """The corpus, and the recipe that trains on it."""
    from regard import config
    from regard.text import cldr

    say("1. a corpus: dates, times, durations, money and quantities, in English and in French (from CLDR, by Babel)")
    cldr.write(folder, pairs, pairs // ONE_TO_TEST)
    say(f"   {pairs:,} pairs in {folder}/train.en and train.fr, {pairs // ONE_TO_TEST:,} more in test.en and test.fr\n")
    data = {"train": (f"{folder}/train.en", f"{folder}/train.fr")}
    tables = {"task": RECIPE["task"], "data": data} | RECIPE | {"train": RECIPE["train"] | {"steps": steps}}
    recipe = folder / "recipe.toml"
    recipe.write_text(config.dump(tables), encoding="utf-8")
    return recipe


def _show(model: Translator, folder: Path) -> None:
    """A table of translations, and the picture of what one of them looked at."""
    from rich.markup import escape
    from rich.table import Table

    from regard.text.files import lines

    sources, targets = list(lines(folder / "test.en")), list(lines(folder / "test.fr"))
    table = Table("English", "French, by the model", "")
    for source, target, best in zip(sources[:12], targets, model.translate(sources[:12]), strict=False):
        verdict = "exact" if best[0].text == target else f"expected {target}"
        table.add_row(*map(escape, (source, best[0].text, verdict)))
    console.print(table)
    picture = _draw(model, [source for source in sources[:200] if len(source.split()) in range(5, 9)][:50], folder)
    say(f"4. pictures: {folder}/run/curve.png (learning curve), {picture} (who looks at whom, the clearest of 50)")


def _draw(model: Translator, sources: list[str], folder: Path) -> Path:
    """The heat map of the translation whose word alignment is the clearest, as the alignment reads it."""
    from regard.look.figures import heat_map
    from regard.tasks.alignment import shares

    tokenizers, maps = model.task.tokenizers, []
    for source, (best,) in zip(sources, model.translate(sources, attention=True), strict=True):
        assert best.attention is not None
        target = tokenizers.target.words(best.ids[:-1])
        words = target, tokenizers.source.words(tokenizers.source.encode(source))
        maps.append((shares(best.attention, *words), words, f"{source}\n{best.text}"))
    weights, words, title = max(maps, key=lambda each: _clear(each[0]))
    rows, columns = ([word.text for word in side] for side in words)
    return heat_map(
        weights, rows, columns, title=title, label="share of each source word", path=folder / "alignment.png"
    )


def _clear(weights: Tensor) -> float:
    """How sure the English words are of their French ones, if there are as many to choose from."""
    return float(weights.amax(0).mean()) if len(weights) >= weights.shape[1] > 0 else 0.0


_NEXT = """
what to try next:
    {regard} translate {folder}/run "Friday, March 14, 2025"
    {regard} translate {folder}/run "12 kilometers per hour" --n-best 3
    {regard} translate {folder}/run --json "5 minutes" | python3 -m json.tool
    {regard} evaluate {folder}/run {folder}/test.en {folder}/test.fr
    {regard} info {folder}/run
your own text, one sentence a line; everything is chosen from the amount of data:
    {regard} train translate train.en train.fr --out runs/mine"""
