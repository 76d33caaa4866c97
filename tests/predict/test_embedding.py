"""Vectors against their plain definitions: layers, pooling, words, windows; alone as in company; mistakes are named."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from encoders import CPU, sentences, small, vocabulary
from torch import Tensor

from regard.data.labels import Labels
from regard.errors import InputError
from regard.models.encoder import TransformerEncoder
from regard.nn import record
from regard.predict import encoder_inference as inference
from regard.predict.embedding import STATIC_LAYERS, Embedder, resolve_embedding_options
from regard.predict.encoder_inference import compute_features, inputs_to_rows, unpad_rows
from regard.predict.worker_threads import map_batches_in_threads
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.shared.encoder_task import EncoderTask
from regard.tasks.tag import TagConfig, TaggingTask
from regard.text.special_tokens import max_context_window, split_into_windows

VOCABULARY = vocabulary()
SENTENCES = [*sentences(12, most=14), "cat"]
LONG = sentences(1, least=60, most=60)[0]
LENGTH = 32


def pretrained(**more: Any) -> PretrainingTask:
    return PretrainingTask(PretrainConfig(length=LENGTH, **more), VOCABULARY)


def classifier(pooling: Any) -> ClassificationTask:
    return ClassificationTask(ClassifyConfig(length=LENGTH, pooling=pooling), VOCABULARY, Labels(("no", "yes")))


TASK = pretrained()
MODEL = small(TASK)


def make_embedder(task: Any = TASK, model: TransformerEncoder = MODEL, **asked: Any) -> Embedder:
    return Embedder(model, task.tokenizer, resolve_embedding_options(model, task.embedding_defaults, **asked), CPU)


def layers_of(task: EncoderTask, model: TransformerEncoder, ids: list[int]) -> list[Tensor]:
    """What enters the layers and what leaves each of them, by the taps of a text alone in its row."""
    rows = inputs_to_rows([task.template.wrap(ids)], task.template.pad_id)
    with torch.no_grad(), record(model, "embedding.out", "encoder.*.out") as recorded:
        last = model(rows)[0]
    found = [recorded["embedding.out"][0], *(recorded[f"encoder.{n}.out"][0] for n in range(len(model.encoder)))]
    return [*(each.double() for each in found[:-1]), last.double()]


def mean_of(vectors: Tensor) -> np.ndarray:
    """By loops, in float64."""
    total = [0.0] * vectors.shape[1]
    for vector in vectors.tolist():
        for place, value in enumerate(vector):
            total[place] += value
    return np.array(total) / len(vectors)


@pytest.mark.parametrize("layers", [(-1,), (0,), (1,), (2,), (0, 2), (0, 1, -1), (-2,)])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_mean_of_all_tokens_at_these_layers(layers: tuple[int, ...], norm: str) -> None:
    model = small(TASK, norm=norm)
    found = make_embedder(model=model, layers=layers, pooling="mean").embed_texts(SENTENCES)
    assert found.dtype == np.float32
    for text, vector in zip(SENTENCES, found, strict=True):
        states = layers_of(TASK, model, VOCABULARY.encode(text))
        mean = sum(states[layer] for layer in layers) / len(layers)
        np.testing.assert_allclose(vector, mean_of(mean), atol=2e-6)


def test_the_first_token_and_no_token_in_its_place() -> None:
    first, static = (
        make_embedder(pooling="cls").embed_texts(SENTENCES),
        make_embedder(layers=STATIC_LAYERS, level="token").embed_words_or_tokens(SENTENCES),
    )
    for text, vector, tokens in zip(SENTENCES, first, static, strict=True):
        ids = VOCABULARY.encode(text)
        np.testing.assert_allclose(vector, layers_of(TASK, MODEL, ids)[-1][0], atol=2e-6)
        np.testing.assert_array_equal(tokens.vectors, MODEL.embedding.tokens.weight[ids].detach())


@pytest.mark.parametrize(("embedding", "scale"), [("scaled", 4.0), ("normed", 1.0), ("plain", 1.0)])
def test_static_vectors_are_scaled_as_in_the_model(embedding: str, scale: float) -> None:
    model = small(TASK, embedding=embedding, d_model=16)
    found = make_embedder(model=model, layers=STATIC_LAYERS, level="token").embed_words_or_tokens(SENTENCES)
    for text, tokens in zip(SENTENCES, found, strict=True):
        rows = model.embedding.tokens.weight[VOCABULARY.encode(text)].detach()
        np.testing.assert_allclose(tokens.vectors, scale * rows, rtol=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
def test_a_classifier_pools_as_it_learned_to(pooling: str) -> None:
    task = classifier(pooling)
    model = small(task)
    embedder = make_embedder(task, model)
    assert embedder.options.pooling == pooling
    for text, vector in zip(SENTENCES, embedder.embed_texts(SENTENCES), strict=True):
        hidden = layers_of(task, model, VOCABULARY.encode(text))[-1]
        query = dict(model.named_parameters()).get("heads.pooler.pooling.attention.query")
        weights = {
            "cls": torch.eye(len(hidden))[0].double(),
            "mean": torch.ones(len(hidden)).double() / len(hidden),
            "attention": (hidden @ query[0].double() / 4).softmax(0) if query is not None else torch.ones(1),
        }[pooling]
        np.testing.assert_allclose(vector, (weights @ hidden).detach(), atol=2e-6)


def test_the_way_of_the_model_and_the_way_asked_for() -> None:
    tagger = TaggingTask(TagConfig(length=LENGTH), VOCABULARY, Labels(("O", "N")))
    own = {"cls": pretrained(pooling="cls"), "mean": tagger}
    for pooling, task in own.items():
        assert resolve_embedding_options(small(task), task.embedding_defaults).pooling == pooling
    unit = pretrained(normalised=True)
    vectors = make_embedder(unit).embed_texts(SENTENCES)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    plain = make_embedder(unit, normalised=False).embed_texts(SENTENCES)
    np.testing.assert_allclose(plain / np.linalg.norm(plain, axis=1, keepdims=True), vectors, atol=1e-6)
    np.testing.assert_allclose(make_embedder().embed_texts(SENTENCES), plain, atol=1e-6)


@pytest.mark.parametrize("level", ["token", "word"])
def test_tokens_and_words(level: str) -> None:
    for text, found in zip(
        SENTENCES, make_embedder(level=level, layers=(1,)).embed_words_or_tokens(SENTENCES), strict=True
    ):
        ids = VOCABULARY.encode(text)
        state = layers_of(TASK, MODEL, ids)[1][1:-1]
        if level == "token":
            assert found.names == VOCABULARY.display_tokens(ids)
            np.testing.assert_allclose(found.vectors, state, atol=2e-6)
        else:
            assert found.names == text.split()
            for word, vector in zip(VOCABULARY.words(ids), found.vectors, strict=True):
                np.testing.assert_allclose(vector, mean_of(state[list(word.token_indices)]), atol=2e-6)


@pytest.mark.parametrize("texts", [SENTENCES, [*SENTENCES, LONG]])
def test_a_text_alone_is_the_same_text_in_company(texts: list[str]) -> None:
    embedder, words = make_embedder(), make_embedder(level="word")
    batched, parts = embedder.embed_texts(texts), words.embed_words_or_tokens(texts)
    backwards = embedder.embed_texts(texts[::-1])[::-1]
    np.testing.assert_allclose(batched, backwards, atol=1e-6)
    for text, vector, part in zip(texts, batched, parts, strict=True):
        np.testing.assert_allclose(embedder.embed_texts([text])[0], vector, atol=1e-6)
        np.testing.assert_allclose(words.embed_words_or_tokens([text])[0].vectors, part.vectors, atol=1e-6)


def test_a_long_text_is_read_in_windows() -> None:
    ids = VOCABULARY.encode(LONG)
    found = split_into_windows(len(ids), LENGTH - 2)
    assert len(found) > 2
    states = [layers_of(TASK, MODEL, ids[start:end])[-1] for start, end in found]
    weights = np.array([end - start for start, end in found], dtype=float)
    expected = sum(fraction * mean_of(state) for fraction, state in zip(weights / weights.sum(), states, strict=True))
    np.testing.assert_allclose(make_embedder().embed_texts([LONG])[0], expected, atol=2e-6)
    tokens = make_embedder(level="token").embed_words_or_tokens([LONG])[0]
    assert len(tokens.names) == len(ids)
    for token, vector in enumerate(tokens.vectors):
        chosen = max_context_window(found, token)
        np.testing.assert_allclose(vector, states[chosen][1 + token - found[chosen].start], atol=2e-6)


def test_what_makes_the_vector_of_a_text() -> None:
    for pooling in ("cls", "mean"):
        embedder = make_embedder(pooling=pooling)
        for text, vector in zip(SENTENCES, embedder.embed_texts(SENTENCES), strict=True):
            read = embedder.weigh_tokens(text)
            assert float(read.weights.sum()) == pytest.approx(1)
            np.testing.assert_allclose(read.weights @ read.hidden, vector, atol=2e-6)
    with pytest.raises(InputError, match=r"this model takes at most 30; split it"):
        make_embedder().weigh_tokens(LONG)


def test_all_states_of_a_text() -> None:
    ids = VOCABULARY.encode(SENTENCES[0])
    found = make_embedder().hidden_states(ids)
    expected = [MODEL.embedding.tokens.weight[ids].double(), *(s[1:-1] for s in layers_of(TASK, MODEL, ids))]
    torch.testing.assert_close(found, torch.stack(expected).detach(), atol=2e-6, rtol=0)


def test_texts_end_to_end_are_read_as_those_with_padding() -> None:
    rows = inputs_to_rows([TASK.template.wrap(VOCABULARY.encode(text)) for text in SENTENCES], TASK.template.pad_id)
    present = rows.segment > 0
    packed, lengths = unpad_rows(rows)
    assert lengths == [len(VOCABULARY.encode(text)) + 2 for text in SENTENCES]
    assert torch.equal(packed.ids[0], rows.ids[present])
    assert torch.equal(packed.position[0], rows.position[present])
    assert packed.segment[0].tolist() == [n for n, length in enumerate(lengths, 1) for _ in range(length)]
    with torch.no_grad():
        masked, unpadded = MODEL(rows), compute_features(MODEL, rows)
        *_, last = MODEL.iter_hidden_states(packed, lengths)
    torch.testing.assert_close(unpadded[present], masked[present], atol=2e-6, rtol=0)
    torch.testing.assert_close(last[0], masked[present], atol=2e-6, rtol=0)
    assert not unpadded[~present].any()


def test_every_core_reads_batches_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = make_embedder().embed_texts(SENTENCES)
    seen: set[str] = set()

    def recorded(*_: object) -> None:
        seen.add(f"{threading.current_thread().name} {torch.get_num_threads()}")

    listening = MODEL.embedding.out.register_forward_hook(recorded)
    monkeypatch.setattr(inference, "CPU_BATCH_TOKENS", (16, 16))
    torch.set_num_threads(2)
    try:
        batched = make_embedder().embed_texts(SENTENCES)
        assert torch.get_num_threads() == 2
        assert {each.split("_")[0] for each in seen} == {"regard-read"}
        assert all(each.endswith(" 1") for each in seen)
        with pytest.raises(ZeroDivisionError):
            list(map_batches_in_threads(lambda batch: [1 // 0], [[0], [1]], CPU))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
        listening.remove()
    np.testing.assert_allclose(batched, alone, atol=1e-6)


def test_workers_leave_the_count_of_other_threads_and_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "CPU_BATCH_TOKENS", (16, 16))

    def count_in_new_thread(batch: list[int]) -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    torch.set_num_threads(2)
    try:
        counts = [count for _, count in map_batches_in_threads(count_in_new_thread, [[0], [1], [2]], CPU)]
        with record(MODEL, "*.weights") as recorded:
            make_embedder().embed_texts(SENTENCES)
    finally:
        torch.set_num_threads(1)
    assert counts == [2, 2, 2]
    assert len(recorded) == len(MODEL.encoder)


def test_nothing_gives_nothing() -> None:
    assert make_embedder().embed_texts([]).shape == (0, 16)
    assert make_embedder(level="word").embed_words_or_tokens([]) == []
    (nothing,) = make_embedder(level="word").embed_words_or_tokens([""])
    assert (nothing.names, nothing.vectors.shape) == ([], (0, 16))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"level": "wrd"}, "no level is called 'wrd'; did you mean 'word'?"),
        ({"level": "sentence"}, "no level is called 'sentence'; known: text, word, token"),
        ({"layers": (3,)}, "layer 3: this model has 2 layers; 0 is the input of the first, -1 the output of the last"),
        (
            {"layers": (0, -4)},
            "layer -4: this model has 2 layers; 0 is the input of the first, -1 the output of the last",
        ),
        ({"pooling": "sum"}, "no pooling is called 'sum'; known: cls, mean, attention, hierarchical, max, last"),
        (
            {"pooling": "attention"},
            "this model has learned no attention over its last hidden states; accepted: cls, mean, max, last",
        ),
        (
            {"pooling": "mean", "level": "word"},
            "pooling makes one vector of a text; leave it out at the level of words",
        ),
    ],
)
def test_what_a_model_does_not_have(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        resolve_embedding_options(MODEL, TASK.embedding_defaults, **asked)
    assert str(refused.value) == message
