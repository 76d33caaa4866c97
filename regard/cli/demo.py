"""The tour: make a corpus of dates, times, money and quantities in English and French, train a translator on it in
about two minutes on two cores, and look at the result.

It runs what you would run on your own text. Everything lands in one folder (--out), which can be deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device
from regard.errors import ConfigError
from regard.progress import console, say

if TYPE_CHECKING:
    from regard.api import Translator

RECIPE: dict[str, dict[str, Any]] = {
    "task": {"name": "translate", "source_lang": "en", "target_lang": "fr", "label_smoothing": 0.0},
    "tokenizer": {"vocabulary": 1024},
    "model": {"preset": "tiny", "dropout": 0.0},
    "train": {
        "steps": 1000,
        "batch_tokens": 1024,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup": 100,
        "validate_every": 250,
        "log_every": 10,
        "average": 1,
    },
}

N_TRAIN, N_TEST = 40_000, 1_000


def demo(
    out: Annotated[str, typer.Option(help="Where to put the corpus, the model and the pictures.")] = "demo",
    device: Device = "auto",
) -> None:
    import regard
    from regard.cli.watch import watch
    from regard.text import cldr

    folder = Path(out)
    if (folder / "run").exists():
        raise ConfigError(
            f"{folder / 'run'}: a demo is already there; delete the folder {folder}, or choose another --out"
        )
    say("1. a corpus: dates, times, durations, money and quantities, in English and in French (from CLDR, by Babel)")
    folder.mkdir(parents=True, exist_ok=True)
    cldr.write(folder, N_TRAIN, N_TEST)
    say(f"   {N_TRAIN:,} pairs in {folder}/train.en and train.fr, {N_TEST:,} more in test.en and test.fr\n")
    say("2. training, with the command you would use for your own files: regard train translate train.en train.fr")
    tables = {**RECIPE, "data": {"train": (f"{folder}/train.en", f"{folder}/train.fr")}}
    watch(regard.train(tables, out=folder / "run", device=device, where="regard demo"))
    model = regard.load(folder / "run", device=device)
    say(f"\n3. the {N_TEST:,} sentences it has never seen")
    scores = model.evaluate([f"{folder}/test.en", f"{folder}/test.fr"], beam=1)
    say(f"   {scores['exact']:.1%} translated exactly, BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}")
    say(f"   {scores['bleu_signature']}\n")
    _show(model, folder)
    say(_NEXT.format(folder=folder))


def _show(model: Translator, folder: Path) -> None:
    """A table of translations, and the picture of what one of them looked at."""
    from rich.table import Table

    from regard.text.files import lines

    sources, targets = list(lines(folder / "test.en")), list(lines(folder / "test.fr"))
    table = Table("English", "French, by the model", "")
    for source, target, best in zip(sources[:12], targets, model.translate(sources[:12]), strict=False):
        table.add_row(source, best[0].text, "exact" if best[0].text == target else f"expected {target}")
    console.print(table)
    source = max((text for text in sources[:200] if len(text) < 45), key=lambda text: len(text.split()))
    say(f"4. pictures: {folder}/run/curve.png (learning curve), {_draw(model, source, folder)} (who looked at whom)")


def _draw(model: Translator, source: str, folder: Path) -> Path:
    """The heat map of one translation, word by word."""
    from regard.look.figures import heat_map
    from regard.tasks.alignment import word_weights

    tokenizers = model.task.tokenizers
    target = model.translate(source)[0].text
    rows, columns = (
        tokenizers.target.words(tokenizers.target.encode(target)),
        tokenizers.source.words(tokenizers.source.encode(source)),
    )
    weights = word_weights(model.force(source, target).attention.mean((0, 1)), rows, columns)
    names = [word.text for word in rows], [word.text for word in columns]
    return heat_map(weights, *names, title=f"{source}\n{target}", path=folder / "alignment.png")


_NEXT = """
what to try next:
    regard translate {folder}/run "Friday, March 14, 2025"
    regard translate {folder}/run "12 kilometers per hour" --n-best 3
    regard translate {folder}/run --json "5 minutes" | python3 -m json.tool
    regard evaluate {folder}/run {folder}/test.en {folder}/test.fr
    regard info {folder}/run
your own text, one sentence a line:
    regard train translate train.en train.fr --out runs/mine"""
