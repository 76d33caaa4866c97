"""Labels of words: on their first piece, learned, scored, and known by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from encoders import CPU, DISTINCT, WORDS, sentences, small, vocabulary
from saved_runs import kept
from tiny_runs import merged, ready, trained

import regard
from regard.data.corpus import Corpus, write_store
from regard.data.labels import Labels
from regard.data.order import PackedOrder
from regard.errors import ConfigError, DataError, InputError
from regard.nn import IGNORE
from regard.predict.tagging import encode_word_windows
from regard.runs.run_directory import RunDirectory
from regard.tasks.tag import TagConfig, TaggedReader, TaggingTask

VOCABULARY = vocabulary(size=40)  # so small that words have several pieces
NAMES = Labels(("B-LOC", "B-PER", "I-PER", "O"))


def task(labels: Labels = NAMES, **settings: object) -> TaggingTask:
    return TaggingTask(TagConfig(**settings), VOCABULARY, labels)  # type: ignore[arg-type]


def test_the_label_is_that_of_the_first_subword(tmp_path: Path) -> None:
    one = task()
    words, labels = "plane\nlands\nin\ntokyo", "O\nO\nO\nB-LOC"
    texts, boundaries, stored = one.encode([(words, labels)])
    word_ids = VOCABULARY.encode_words(words.split("\n"))
    assert max(map(len, word_ids)) > 1
    expected = [IGNORE]
    for ids, label in zip(word_ids, labels.split("\n"), strict=True):
        expected += [NAMES.index(label), *[IGNORE] * (len(ids) - 1)]
    assert stored == [[*expected, IGNORE]]
    assert texts[0][1:-1] == [index for ids in word_ids for index in ids]
    store = write_store(tmp_path / "s", [(words, labels)] * 3, one, fingerprint="")
    batch = one.make_batch(store, next(PackedOrder(one.example_lengths(store), [64], 2, seed=0).iterate_epoch()))
    assert sorted(batch.labels[batch.labels != IGNORE].tolist()) == sorted([NAMES.index("O")] * 9 + [0] * 3)
    assert batch.n_tokens == 12
    assert boundaries == [len(texts[0])]


def test_scores() -> None:
    gold, predicted = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-LOC"]]
    assert task().compute_metrics(gold, predicted) == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": 0.75}
    words = task(Labels(("NOUN", "VERB")))
    assert words.compute_metrics([["NOUN", "VERB"]], [["NOUN", "NOUN"]]) == {"accuracy": 0.5}
    assert (task().validation_metric.key, words.validation_metric.key) == ("f1", "accuracy")


def conll(folder: Path, n: int = 60) -> Path:
    """Cats and dogs are animals, two words long if red; IOB1, as in CoNLL-2003."""
    lines = []
    for text in sentences(n):
        before = ""
        for word in text.split():
            label = "I-ANI" if word in ("cat", "dog") or (word == "red") else "O"
            lines.append(f"{word} X {label}")
            before = label
        lines.append("")
    assert before in ("O", "I-ANI")
    path = folder / "data.conll"
    path.write_text("-DOCSTART- X O\n\n" + "\n".join(lines) + "\n")
    return path


RECIPE = {
    "task": {"name": "tag"},
    "tokenizer": {"vocabulary": 48},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 120, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 10, "validate_every": 40},
}


def test_it_learns_and_is_scored(tmp_path: Path) -> None:
    file = str(conll(tmp_path))
    trained(merged(RECIPE, {"data": {"train": [file], "valid": [file]}}), tmp_path / "run")
    _, found, model = RunDirectory(tmp_path / "run").load()
    assert isinstance(found, TaggingTask)
    assert found.labels.names == ("B-ANI", "I-ANI", "O")
    scores = found.evaluate(model, [file], (), False, CPU)  # type: ignore[arg-type]
    assert scores["f1"] > 0.95
    assert scores["f1_ANI"] == scores["f1"]
    assert scores["n"] == 60
    assert {label for label, _ in found.make_predictor(model, CPU).tag([WORDS])[0]} <= {"B-ANI", "I-ANI", "O"}  # type: ignore[arg-type]


def test_all_of_the_validation_data_is_scored(tmp_path: Path) -> None:
    """As `evaluate` does, however many sentences there are; the last are unlike the others."""
    file, many = conll(tmp_path), tmp_path / "many.conll"
    many.write_text(file.read_text().rstrip("\n") + "\n\n" + "the X B-ANI\n\n" * 2200)
    prepared = ready(merged(RECIPE, {"data": {"train": [str(file)], "valid": [str(many)]}}), tmp_path / "run")
    found, model = prepared.task, prepared.model.eval()
    assert isinstance(found, TaggingTask)
    wanted = found.evaluate(model, [str(many)], (), False, CPU)  # type: ignore[arg-type]
    assert wanted["n"] == 2260
    assert found.compute_validation_metrics(model, prepared.valid_store, prepared.scored_examples, CPU)[
        "accuracy"
    ] == pytest.approx(wanted["accuracy"])  # type: ignore[arg-type]


def test_labels_unseen_in_training(tmp_path: Path) -> None:
    """They are named with their line: in evaluation, and in validation files."""
    file, other = str(conll(tmp_path)), tmp_path / "other.conll"
    other.write_text("the O\ncat I-ANI\n\nin O\ntokyo I-LOC\n")
    message = r":5: the label 'B-ANI' does not occur in the training data; known: B-LOC, B-PER, I-PER, O;"
    with pytest.raises(DataError, match=rf"data.conll{message}"):
        task().evaluate(small(task()), [file], (), False, CPU)
    message = r"other.conll:5: the label 'B-LOC' does not occur in the training data; known: B-ANI, I-ANI, O;"
    with pytest.raises(DataError, match=message):
        ready(merged(RECIPE, {"data": {"train": [file], "valid": [str(other)]}}), tmp_path / "run")


def test_a_label_that_is_only_held_out_is_known_all_the_same(tmp_path: Path) -> None:
    file = conll(tmp_path)
    tables = merged(RECIPE, {"data": {"train": [str(file)]}, "train": {"steps": 2, "validate_every": 1}})
    data = ready(tables, tmp_path / "first").config.data
    held = [words.split("\n") for words, _ in Corpus(TaggedReader(), data, "test").valid_examples()]
    marked = [
        each.replace(" O", " RARE") if [line.split()[0] for line in each.splitlines()] in held else each
        for each in file.read_text().split("\n\n")
    ]
    file.write_text("\n\n".join(marked))
    trained(tables, tmp_path / "run")
    assert "RARE" in Labels.load(tmp_path / "run").names


def test_a_single_label_is_nothing_to_learn(tmp_path: Path) -> None:
    file = tmp_path / "data.conll"
    file.write_text("\n\n".join(" O\n".join(text.split()) + " O" for text in sentences(30)))
    with pytest.raises(ConfigError, match="only one label, 'O': nothing to tell apart; is it the right column"):
        ready(merged(RECIPE, {"data": {"train": [str(file)]}}), tmp_path / "run")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_what_is_looked_at_is_what_is_tagged(kind: str, tmp_path: Path) -> None:
    one = TaggingTask(TagConfig(), vocabulary(kind, 330), NAMES)
    tagger = regard.load(kept(one, small(one), tmp_path / "run"), device="cpu")
    text = "The cat's red (in tokyo)."
    words = [each.word for each in tagger.tag(text)]
    ((_, placed),) = encode_word_windows(one.tokenizer, one.template, [words], 64)
    assert tagger.look(text).tokens["encoder"] == one.tokenizer.display_tokens(placed.encoded.ids)
    with pytest.raises(InputError, match="a tagger reads single texts; leave out: pair"):
        tagger.look(text, pair="a dog")


def test_a_sentence_longer_than_the_rows_is_cut_into_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "data.conll"
    every = [DISTINCT[i : i + 4] for i in range(100)] + [DISTINCT[:120]]
    file.write_text("\n\n".join("\n".join(f"{word} {'AB'[ord(word[1]) % 2]}" for word in each) for each in every))
    tables = merged(RECIPE, {"data": {"train": [str(file)], "valid": [str(file)], "max_length": 24}})
    prepared = ready(merged(tables, {"tokenizer": {"vocabulary": 60}}), tmp_path / "run")
    assert prepared.train_store["text"].lengths.max() == 24
    labelled = sum(
        int((prepared.train_store["label"][item] != IGNORE).sum()) for item in range(100, len(prepared.train_store))
    )
    assert labelled == 120
    assert prepared.train_order.items is None  # all of the store
    assert "left out" not in capsys.readouterr().err


def test_more_than_one_column() -> None:
    with pytest.raises(ConfigError, match="columns: expected one, that of the labels, found 1, 2"):
        list(TaggedReader.read_examples(["x.conll"], ("1", "2"), skip_empty=False))
