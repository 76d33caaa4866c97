"""The end of the tour: ready-made models on real sentences, each looked into a little. Called by `regard demo`.

A model that the installed package does not have is passed over, in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.api import Classifier, SentenceEncoder, Translator
from regard.progress import print_message
from regard.runs.ready_made import ReadyMadeModel, list_ready_made

SENTENCE = "The cat sat on the mat because it was tired."
OPINION = "The story is thin, but the actors are wonderful and the ending is a joy."
QUERY = "Where can I buy a ticket for the train?"
SENTENCES = (
    "The ticket office of the station opens at six.",
    "He trains every day for the marathon.",
    "A return fare to London costs forty pounds.",
    "She parked her car behind the theatre.",
    "My grandmother bakes bread on Sundays.",
    "The concert was sold out weeks ago.",
    "You can pay the fare on the bus.",
    "The children are playing in the garden.",
)
BAR_WIDTH = 20
"""Characters of the longest bar."""


def show_ready_made(folder: Path, device: str) -> None:
    """Translate, judge and compare real sentences, and write a page that looks into the translation."""
    models = list_ready_made()
    parts: dict[str, Callable[[ReadyMadeModel, Path, str], None]] = {
        "en-fr": _translate,
        "sentiment-en": _judge,
        "sentences-en": _find_neighbours,
    }
    print_message("\n5. ready-made models, on real sentences (all of them: regard models)")
    for name, show in parts.items():
        if name in models:
            show(models[name], folder, device)
        else:
            print_message(f"   {name} is not among the installed models")


def _translate(entry: ReadyMadeModel, folder: Path, device: str) -> None:
    """Print a translation with the source word of each of its words, and write the page."""
    model = Translator.load(entry.path, device=device)
    model.to = entry.target_lang
    best = model.translate(SENTENCE)[0]
    print_message(f"   {entry.name}: {SENTENCE}\n   {' ' * len(entry.name)}  {best.text}")
    tokenizers = model.task.tokenizers
    written = [word.text for word in tokenizers.target.words(tokenizers.target.encode(best.text))]
    read = [word.text for word in tokenizers.source.words(tokenizers.source.encode(SENTENCE))]
    pairs = [(written[target], read[source]) for source, target in best.alignment if target < len(written)]
    print_message(f"   read for each word: {', '.join(f'{word} ← {origin}' for word, origin in pairs)}")
    page = model.look(SENTENCE).save(folder / "look.html", words=True)
    print_message(f"   open {page} in a browser: what the model looked at, and which view to trust")


def _judge(entry: ReadyMadeModel, folder: Path, device: str) -> None:
    """Print a class, and by how much each word speaks for it or against it."""
    inspection = Classifier.load(entry.path, device=device).look(OPINION)
    view = inspection.view_data("gradients", words=True)
    print_message(f"\n   {entry.name}: {OPINION}\n   {view.about['prediction']}; words for and against that:")
    array = next(each for each in view.arrays if each.name == "integrated_gradients")
    values = array.values[:, 0].tolist()
    largest = max(map(abs, values))
    for word, value in zip(view.labels(array.axes[0], len(values)), values, strict=True):
        bar = ("+" if value > 0 else "-") * round(BAR_WIDTH * abs(value) / largest)
        print_message(f"      {word:<12}{value:+.2f}  {bar}")


def _find_neighbours(entry: ReadyMadeModel, folder: Path, device: str) -> None:
    """Print the sentences nearest to one."""
    model = SentenceEncoder.load(entry.path, device=device)
    print_message(f'\n   {entry.name}: nearest to "{QUERY}"')
    for hit in model.nearest(QUERY, SENTENCES, top=3):
        print_message(f"      {hit.score:.2f}  {hit.text}")
