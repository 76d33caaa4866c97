"""Imported encoder-decoders: the same generated ids, losses and special tokens as in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from parity import padded, sentences
from theirs import CASES, Case, save

import regard
from regard.errors import ConfigError
from regard.generate import DecodingConfig
from regard.models.seq2seq import TransformerSeq2Seq
from regard.runs.model_loading import open_model
from regard.tasks.translate import TranslationTask
from regard.training.pretrained import load_pretrained

CPU = torch.device("cpu")
WRITTEN = 10
SAMPLE_PAIRS = [case for case in CASES if case.model.endswith(("MTModel", "ForConditionalGeneration"))]


def opened(case: Case, folder: Path) -> tuple[Any, TranslationTask, TransformerSeq2Seq]:
    theirs = save(case, folder)
    _, task, ours = open_model(folder)
    assert isinstance(task, TranslationTask)
    assert isinstance(ours, TransformerSeq2Seq)
    return theirs, task, ours


@pytest.mark.parametrize("case", SAMPLE_PAIRS, ids=lambda case: case.name)
def test_greedy_search_equals_transformers(case: Case, tmp_path: Path) -> None:
    theirs, task, ours = opened(case, tmp_path)
    special_tokens, sources = task.special_tokens, sentences(290, frozenset(range(5)), (5, 1, 9, 3))
    ids, mask = padded([special_tokens.wrap_source(each) for each in sources], special_tokens.pad_id)
    options = {"num_beams": 1, "do_sample": False, "max_new_tokens": WRITTEN, "forced_eos_token_id": None}
    never = [[token] for token in special_tokens.decoding_tokens.suppressed_ids]
    first = {"forced_bos_token_id": special_tokens.prefix_ids[0]} if special_tokens.prefix_ids else {}
    hf_ids = theirs.generate(ids, attention_mask=mask, bad_words_ids=never, **options, **first)
    hypotheses = task.make_predictor(ours, CPU).generate(sources, DecodingConfig(beam=1))
    for (best,), row in zip(hypotheses, hf_ids.tolist(), strict=True):
        text = row[1 + len(special_tokens.prefix_ids) :]
        expected = text[: text.index(special_tokens.eos_id) + 1] if special_tokens.eos_id in text else text
        assert list(best.ids)[: len(expected)] == expected
        assert special_tokens.eos_id not in best.ids[:-1]


@pytest.mark.parametrize("case", [SAMPLE_PAIRS[0], SAMPLE_PAIRS[-1]], ids=lambda case: case.name)
def test_forced_decoding_scores_equal_search_scores(case: Case, tmp_path: Path) -> None:
    """Stepwise, with the bias of the logits, and in one pass."""
    _, task, ours = opened(case, tmp_path)
    sources = sentences(290, frozenset(range(5)), (5, 1, 9))
    hypotheses = [best for best, *_ in task.make_predictor(ours, CPU).generate(sources, DecodingConfig(beam=2))]
    pairs = [(source, best.ids[:-1]) for source, best in zip(sources, hypotheses, strict=True)]
    for forced, best, source in zip(
        task.make_predictor(ours, CPU).force_decode(pairs), hypotheses, sources, strict=True
    ):
        assert forced.hypothesis.ids == best.ids
        assert forced.hypothesis.token_scores == pytest.approx(best.token_scores, abs=1e-4)
        assert forced.attention.shape[2:] == (len(best.ids), len(task.special_tokens.wrap_source(source)))
        assert forced.attention.sum(-1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("case", SAMPLE_PAIRS, ids=lambda case: case.name)
def test_loss_equals_transformers(case: Case, tmp_path: Path) -> None:
    theirs, task, ours = opened(case, tmp_path)
    pairs = list(
        zip(sentences(290, frozenset(range(5)), (5, 1, 9)), sentences(290, frozenset(range(5)), (2, 7, 4)), strict=True)
    )
    ids, mask = padded([task.special_tokens.wrap_source(source) for source, _ in pairs], task.special_tokens.pad_id)
    labels, _ = padded([task.special_tokens.wrap_target_out(target) for _, target in pairs], -100)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask, labels=labels).loss
    nll, n_tokens = task.make_predictor(ours, CPU).compute_nll(pairs)
    assert nll / n_tokens == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("name", ["Marian", "BART"])
def test_perplexity_equals_transformers(name: str, tmp_path: Path) -> None:
    theirs, task, _ = opened(next(case for case in CASES if case.name == name), tmp_path / "model")
    source, target = task.tokenizers.source.encode("the cat"), task.tokenizers.target.encode("a cat")
    ids, labels = task.special_tokens.wrap_source(source), task.special_tokens.wrap_target_out(target)
    with torch.no_grad():
        expected = theirs(torch.tensor([ids]), labels=torch.tensor([labels])).loss.exp()
    (tmp_path / "pairs.tsv").write_text("the cat\ta cat\n", encoding="utf-8")
    scores = regard.Translator.load(tmp_path / "model", device="cpu").evaluate(str(tmp_path / "pairs.tsv"), beam=1)
    assert scores["tokens"] == len(labels)
    assert scores["perplexity"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("name", ["Marian", "BART"])
def test_training_batches_have_the_special_tokens(name: str, tmp_path: Path) -> None:
    """The packed ids of a pair equal those of the pair encoded separately."""
    _, task, ours = opened(next(case for case in CASES if case.name == name), tmp_path)
    stored = task.encode([("the cat", "a cat")])
    whole = task.make_predictor(ours, CPU).make_batch(
        [
            tuple(
                side.encode(text)
                for side, text in zip(
                    (task.tokenizers.source, task.tokenizers.target), ("the cat", "a cat"), strict=True
                )
            )
        ]
    )
    special_tokens = task.special_tokens
    assert [*stored[0][0], special_tokens.eos_id] == whole.source.ids[0].tolist()
    assert [special_tokens.decoder_start_id, *stored[1][0]] == whole.target_in.ids[0].tolist()
    assert [*stored[1][0], special_tokens.eos_id] == whole.target_out[0].tolist()


def test_text_in_text_out(tmp_path: Path) -> None:
    """Output text has no special tokens, and words are aligned to words."""
    for name in ("Marian", "BART"):
        _, task, ours = opened(next(case for case in CASES if case.name == name), tmp_path / name)
        (text, (best, *_)), *_ = task.make_predictor(ours, CPU).translate(
            [["the cat"]], DecodingConfig(beam=1), with_attention=True
        )
        assert text == "the cat"
        assert "</s>" not in best.text
        assert best.source_tokens[-1] == "</s>"
        assert best.attention is not None
        assert best.attention.shape[-1] == len(best.source_tokens)
        assert {source for source, _ in best.alignment} <= {0, 1}


@pytest.mark.parametrize(("name", "special_tokens"), [("Marian", ("<pad>", "")), ("BART", ("</s>", "<s>"))])
def test_training_can_start_from_an_imported_model(name: str, special_tokens: tuple[str, str], tmp_path: Path) -> None:
    """Training continues with the same special tokens."""
    save(next(case for case in CASES if case.name == name), tmp_path)
    start = load_pretrained({"start": str(tmp_path)}, TranslationTask)
    tables = start.complete_recipe(
        {"model": {"start": str(tmp_path)}, "tokenizer": {}, "task": {"name": "translate"}}, "test"
    )
    start_id, first_id = special_tokens
    assert tables["task"] == {"name": "translate", "start": start_id, "first": first_id, "directions": ()}
    assert tables["tokenizer"]["kind"] == "ready"


def test_training_from_two_vocabularies_is_refused(tmp_path: Path) -> None:
    save(next(case for case in CASES if case.vocabulary == "two"), tmp_path)
    with pytest.raises(ConfigError, match=r": has a vocabulary for each side; training cannot start from it; leave "):
        load_pretrained({"start": str(tmp_path)}, TranslationTask)
