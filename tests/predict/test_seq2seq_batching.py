"""Batches of a translator kept between calls and shared by threads, and on a GPU what captured graphs find."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

import pytest
import torch
from tiny_runs import CPU, EIGHT, learned
from torch.testing import assert_close

from regard.data.buckets import buffered_read
from regard.generate import BeamSearchConfig, DecodingConfig, GraphedBatch
from regard.models.seq2seq import TransformerSeq2Seq
from regard.predict.seq2seq_batching import MAX_KEPT_BATCHES, Seq2SeqBatching, _BatchKey, round_up_to_slots
from regard.predict.translation import Translation, TranslationPredictor
from regard.runs.run_directory import RunDirectory

SEARCHES = [DecodingConfig(beam=1), DecodingConfig(beam=4, n_best=3), DecodingConfig(beam=5, n_best=2, batch=3)]
SOURCES = [source for source, _ in EIGHT]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> TranslationPredictor:
    run = RunDirectory(learned(tmp_path_factory.mktemp("learned")))
    _, task, model = run.load()
    built: TranslationPredictor = task.make_predictor(model, CPU)
    return built


def batching_of(predictor: TranslationPredictor) -> Seq2SeqBatching:
    return Seq2SeqBatching(predictor.model, predictor.special_tokens, CPU)


def keys(predictor: TranslationPredictor) -> Iterable[_BatchKey]:
    marks = predictor.special_tokens.decoding_tokens
    return (_BatchKey(BeamSearchConfig.beam(marks, width, 0.6), 4, 32, 32) for width in range(1, MAX_KEPT_BATCHES + 3))


def test_a_batch_in_use_is_not_given_to_another(predictor: TranslationPredictor) -> None:
    batching = batching_of(predictor)
    key = next(iter(keys(predictor)))
    batch = batching._make_graphed_batch(key)
    batching._idle.put_back([(key, batch)])
    assert batching._idle.take(key) is batch
    assert batching._idle.take(key) is None


def test_few_batches_are_kept_the_latest(predictor: TranslationPredictor) -> None:
    batching = batching_of(predictor)
    built = [(key, batching._make_graphed_batch(key)) for key in keys(predictor)]
    for each in built:
        batching._idle.put_back([each])
    assert len(batching._idle.batches) == MAX_KEPT_BATCHES
    assert [batching._idle.take(key) for key, _ in built] == [None, None, *(b for _, b in built[-MAX_KEPT_BATCHES:])]


@pytest.mark.parametrize(("n_sentences", "batch_size", "n_slots"), [(1, 32, 1), (5, 32, 8), (33, 32, 32), (0, 32, 1)])
def test_there_are_no_more_slots_than_sentences_need(n_sentences: int, batch_size: int, n_slots: int) -> None:
    assert round_up_to_slots(n_sentences, batch_size) == n_slots


def translate(predictor: TranslationPredictor, search: DecodingConfig) -> list[list[Translation]]:
    return [best for _, best in predictor.translate(buffered_read(SOURCES), search, with_alignment=False)]


def assert_same(found: list[list[Translation]], expected: list[list[Translation]], tolerance: float) -> None:
    assert [[each.ids for each in n_best] for n_best in found] == [[each.ids for each in n_best] for n_best in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert_close(one.token_scores, other.token_scores, rtol=0, atol=tolerance)


def on_gpu(predictor: TranslationPredictor, dtype: torch.dtype) -> TranslationPredictor:
    device = torch.device("cuda")
    model = copy.deepcopy(predictor.model).to(device, dtype)
    return TranslationPredictor(model, predictor.tokenizers, predictor.special_tokens, device)


def kept(predictor: TranslationPredictor) -> list[GraphedBatch]:
    return [batch for _, batch in predictor.batching._idle.batches]


@pytest.mark.gpu
@pytest.mark.parametrize("search", SEARCHES)
def test_graphs_translate_as_a_cpu_does(predictor: TranslationPredictor, search: DecodingConfig) -> None:
    gpu = on_gpu(predictor, torch.float32)
    expected = translate(predictor, search)
    for _ in range(3):
        assert_same(translate(gpu, search), expected, 1e-3)
    assert len(kept(gpu)) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("search", SEARCHES)
def test_graphs_in_bfloat16_translate_as_without_them(
    predictor: TranslationPredictor, search: DecodingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = on_gpu(predictor, torch.bfloat16)
    found = translate(gpu, search)
    assert kept(gpu)
    monkeypatch.setattr(TransformerSeq2Seq, "has_static_state", property(lambda model: False))
    eager = translate(on_gpu(predictor, torch.bfloat16), search)
    assert_same([n_best[:1] for n_best in found], [n_best[:1] for n_best in eager], 0.05)


def run_in_threads(predictor: TranslationPredictor, n_calls: int) -> list[Any]:
    with ThreadPoolExecutor(4) as pool:
        searches = [SEARCHES[i % len(SEARCHES)] for i in range(n_calls)]
        return list(pool.map(partial(translate, predictor), searches))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_threads_share_a_model_and_each_finds_the_same_bits(predictor: TranslationPredictor, device: str) -> None:
    shared = predictor if device == "cpu" else on_gpu(predictor, torch.float32)
    expected = [translate(shared, search) for search in SEARCHES]
    assert run_in_threads(shared, 12) == expected * 4
    assert len(kept(shared)) <= MAX_KEPT_BATCHES
