"""Next sentences, asked: against the definition and transformers, in pairs that fit and that do not."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import transformers
from encoders import CPU, sentences, small, vocabulary
from saved_runs import kept
from theirs import CASES, save

import regard
from regard.cli import main
from regard.errors import InputError
from regard.export import export_model
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.next_sentence import NextSentencePredictor
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

TASK = PretrainingTask(PretrainConfig(objective="masked+next"), vocabulary())
MODEL = small(TASK, seed=3)
TEXT_PAIRS = list(zip(sentences(9), sentences(9, seed=1), strict=True))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kept(TASK, MODEL, tmp_path_factory.mktemp("next") / "bert")


def test_probability_is_the_first_class_of_the_pooled_cls() -> None:
    predictor = NextSentencePredictor(MODEL, TASK.tokenizer, CPU)
    for pair, prediction in zip(TEXT_PAIRS, predictor.predict(TEXT_PAIRS), strict=True):
        first, second = (TASK.tokenizer.encode(text) for text in pair)
        cls, sep = TASK.template.cls_id, TASK.template.sep_id
        encoded = TASK.template.wrap(first, second)
        assert encoded.ids == [cls, *first, sep, *second, sep]
        with torch.no_grad():
            hidden = MODEL(inputs_to_rows([encoded], TASK.template.pad_id))[0, 0]
            pooled = torch.tanh(MODEL.heads["pooler"].dense(hidden))  # type: ignore[operator, union-attr]
            follows, does_not = MODEL.heads["next"](pooled).tolist()
        assert prediction.probability == pytest.approx(1 / (1 + math.exp(does_not - follows)), abs=1e-6)
        assert prediction.is_next == (follows >= does_not)
        assert prediction.n_tokens_left_out == 0


def test_pair_that_is_too_long_is_read_where_its_texts_meet() -> None:
    """Of 64 positions three are for special tokens: 30 for the first text, 31 for the second, or all for one."""
    predictor = NextSentencePredictor(MODEL, TASK.tokenizer, CPU)
    words = [text.split() for text in (*sentences(12, seed=5), *sentences(12, seed=6))]
    flat = [word for text in words for word in text]
    first, second = " ".join(flat[:50]), " ".join(flat[50:100])
    assert [len(TASK.tokenizer.encode(text)) for text in (first, second)] == [50, 50]
    (cut,) = predictor.predict([(first, second)])
    assert cut.n_tokens_left_out == 39
    (same,) = predictor.predict([(" ".join(flat[20:50]), " ".join(flat[50:81]))])
    assert cut.probability == pytest.approx(same.probability, abs=1e-6)
    assert predictor._shorten(list(range(100)), [7] * 5) == (list(range(44, 100)), [7] * 5, 44)
    assert predictor._shorten([7] * 5, list(range(100))) == ([7] * 5, list(range(56)), 44)


@pytest.mark.parametrize("name", ["BertForNextSentencePrediction", "BertForPreTraining"])
def test_imported_model_gives_the_probability_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = save(next(case for case in CASES if case.model == name), tmp_path / "theirs")
    ours = regard.MaskedLanguageModel.load(tmp_path / "theirs", device="cpu")
    assert ours.task.verb == ("next" if name == "BertForNextSentencePrediction" else "fill")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text, pair in (("the cat", "a dog, the cat!"), ("cat", "the cat is the cat")):
        with torch.no_grad():
            outputs = theirs(**tokenizer(text, pair, return_tensors="pt"))
        logits = outputs.logits if hasattr(outputs, "logits") else outputs.seq_relationship_logits
        found = ours.next_sentence(text, pair).probability
        assert found == pytest.approx(float(logits.softmax(-1)[0, 0]), abs=1e-4)
    export_model(tmp_path / "theirs", tmp_path / "again", "hf")
    again = getattr(transformers, name).from_pretrained(tmp_path / "again").eval()
    for key, weight in theirs.state_dict().items():
        torch.testing.assert_close(again.state_dict()[key], weight)


def test_api_takes_one_pair_or_a_list(bert: Path) -> None:
    model = regard.MaskedLanguageModel.load(bert, device="cpu")
    found = model.next_sentence(TEXT_PAIRS)
    assert [each.probability for each in found] == pytest.approx(
        [model.next_sentence(*pair).probability for pair in TEXT_PAIRS], abs=1e-6
    )
    assert list(model.next_sentence_iterable(iter(TEXT_PAIRS))) == found
    assert math.isnan(model.next_sentence([("", "")])[0].probability)
    with pytest.raises(InputError, match="pair 1, counted from 0: one of its texts is empty; give both"):
        model.next_sentence([TEXT_PAIRS[0], ("a cat", " ")])
    with pytest.raises(InputError, match="only one text; give the one that may follow it too"):
        model.next_sentence("a cat")  # type: ignore[call-overload]


def test_long_pairs_are_counted(bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = regard.MaskedLanguageModel.load(bert, device="cpu")
    model.next_sentence([TEXT_PAIRS[0], ("cat " * 70, "dog")])
    assert "1 of 2 pairs are longer than 64 tokens; read where the two texts meet" in capsys.readouterr().err


def test_look_at_a_pair_says_the_verdict(bert: Path) -> None:
    model = regard.MaskedLanguageModel.load(bert, device="cpu")
    text, pair = TEXT_PAIRS[0]
    seen, prediction = model.look(text, pair), model.next_sentence(text, pair)
    label = "next" if prediction.is_next else "not next"
    probability = prediction.probability if prediction.is_next else 1 - prediction.probability
    assert seen.about["prediction"] == f"{label} ({probability:.0%})"
    assert seen.look_target.output_labels == (label,)
    with torch.no_grad():
        assert float(seen.look_target.explained_outputs().exp()) == pytest.approx(probability, abs=1e-6)
    assert seen.view_data("gradients").arrays[0].values.shape[-1] == 1
    assert model.look(text).look_target.output_labels == ()


def ended(*arguments: object) -> None:
    """Run a command, whose end is status 0."""
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    assert not end.value.code


def test_command(bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = regard.MaskedLanguageModel.load(bert, device="cpu")
    expected = [each.probability for each in model.next_sentence(TEXT_PAIRS)]
    ended("next", bert, *TEXT_PAIRS[0], "--device", "cpu")
    assert capsys.readouterr().out == f"{expected[0]:.4f}\n"
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in TEXT_PAIRS) + "\n")
    ended("next", bert, "--file", file, "--device", "cpu")
    found = capsys.readouterr()
    assert found.out.splitlines() == [*(f"{each:.4f}" for each in expected), ""]
    assert "1 of 10 texts are empty; so are their results" in found.err
    ended("next", bert, "--file", file, "--json", "--device", "cpu")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {
        "text": TEXT_PAIRS[0][0],
        "pair": TEXT_PAIRS[0][1],
        "probability": pytest.approx(expected[0]),
        "is_next": expected[0] >= 0.5,
    }
    assert lines[-1] == {"text": "", "pair": "", "probability": None, "is_next": None}


def test_refusals(bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: object) -> str:
        with pytest.raises(SystemExit) as end:
            main([*map(str, arguments), "--device", "cpu"])
        assert end.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert refused("next", bert, "a cat") == (
        "error: 1 text given; give two, or pairs with --file, one a line, tab-separated"
    )
    assert refused("next", bert, "a cat", " ") == "error: a text is empty; give at least one word"
    (tmp_path / "three.tsv").write_text("a\tb\nc\td\te\n")
    assert refused("next", bert, "--file", tmp_path / "three.tsv") == (
        "error: line 2: expected two texts, tab-separated, found 'c\td\te'"
    )
    words = PretrainingTask(PretrainConfig(objective="masked"), TASK.tokenizer)
    bare = kept(words, small(words), tmp_path / "masked")
    assert refused("next", bare, "a", "b").startswith("error: this model has no head for next sentences; use one pre-")
