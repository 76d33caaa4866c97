"""Rows against the plain definition: one sentence after another, position by position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import (
    Rows,
    Seq2SeqBatch,
    build_causal_lm_batch,
    build_rows,
    build_seq2seq_batch,
    sentences_to_rows,
)
from regard.data.columns import Column, TokenColumnSpec
from regard.data.lm_windows import LanguageModelWindows
from regard.data.order import PackedOrder, Placement
from regard.data.store import TokenStore
from regard.nn import IGNORE

PAD, SOS, EOS = 0, 1, 2


def plain_rows(
    sentences: list[list[int]], placement: Placement, width: int, before: int | None, after: int | None
) -> list[list[list[int]]]:
    """Return ids, segments and positions by the plain definition."""
    rows: list[list[tuple[int, int, int]]] = [[] for _ in range(placement.n_rows)]
    numbers = [0] * placement.n_rows
    for item, row in zip(placement.items.tolist(), placement.rows.tolist(), strict=True):
        ids = [before] * (before is not None) + sentences[item] + [after] * (after is not None)
        numbers[row] += 1
        rows[row] += [(token, numbers[row], position) for position, token in enumerate(ids)]
    filled = [row + [(PAD, 0, 0)] * (width - len(row)) for row in rows]
    return [[[cell[i] for cell in row] for row in filled] for i in range(3)]


def parts(rows: Rows) -> list[list[list[int]]]:
    return [rows.ids.tolist(), rows.segment.tolist(), rows.position.tolist()]


def random_sentences(n: int, seed: int = 0) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(3, 60_000, generator.integers(0, 9)).tolist() for _ in range(n)]


def make_placement(items: list[int], rows: list[int], n_rows: int, width: int) -> Placement:
    return Placement(np.array(items, dtype=np.int64), np.array(rows, dtype=np.int32), n_rows, (width,))


@pytest.mark.parametrize("before", [None, SOS])
@pytest.mark.parametrize("after", [None, EOS])
def test_rows_equal_the_plain_definition(before: int | None, after: int | None) -> None:
    sentences = random_sentences(60)
    lengths = np.array([[len(ids) + 2] for ids in sentences])
    for placement in PackedOrder(lengths, [17], 4, seed=3).iterate_epoch():
        rows = build_rows(
            Column.from_sentences(sentences, "uint16"), placement, 17, prefix_id=before, suffix_id=after, pad_id=PAD
        )
        assert parts(rows) == plain_rows(sentences, placement, 17, before, after)
        assert all(tensor.dtype == torch.int32 for tensor in (rows.ids, rows.segment, rows.position))


def test_row_of_the_module_docstring() -> None:
    rows = build_rows(
        Column.from_sentences([[17, 5], [40], [9]]),
        make_placement([0, 1, 2], [0, 0, 0], 1, 8),
        8,
        suffix_id=EOS,
        pad_id=PAD,
    )
    assert parts(rows) == [[[17, 5, 2, 40, 2, 9, 2, 0]], [[1, 1, 1, 2, 2, 3, 3, 0]], [[0, 1, 2, 0, 1, 0, 1, 0]]]


def test_rows_without_items_are_padding() -> None:
    sentences = [[7, 8], [9]]
    placement = make_placement([1, 0], [1, 3], 5, 4)
    rows = build_rows(Column.from_sentences(sentences), placement, 4, pad_id=PAD)
    assert parts(rows) == plain_rows(sentences, placement, 4, None, None)
    assert rows.segment.sum(1).tolist() == [0, 1, 0, 2, 0]


def test_empty_sentence_has_a_segment_number() -> None:
    rows = build_rows(Column.from_sentences([[7], [], [8]]), make_placement([0, 1, 2], [0, 0, 0], 1, 3), 3, pad_id=PAD)
    assert rows.segment.tolist() == [[1, 3, 0]]
    with_end = build_rows(
        Column.from_sentences([[7], [], [8]]), make_placement([0, 1, 2], [0, 0, 0], 1, 5), 5, suffix_id=EOS, pad_id=PAD
    )
    assert with_end.segment.tolist() == [[1, 1, 2, 3, 3]]


def test_batch_without_items_is_padding() -> None:
    rows = build_rows(Column.from_sentences([]), make_placement([], [], 2, 3), 3, suffix_id=EOS, pad_id=PAD)
    assert parts(rows) == [[[0] * 3] * 2] * 3


def test_row_longer_than_the_width_is_refused() -> None:
    with pytest.raises(AssertionError, match="4 tokens in a row of width 3"):
        build_rows(Column.from_sentences([[5, 6], [7, 8]]), make_placement([0, 1], [0, 0], 1, 3), 3, pad_id=PAD)


def pair_store(path: Path) -> tuple[TokenStore, list[list[int]], list[list[int]]]:
    source, target = random_sentences(80, seed=1), random_sentences(80, seed=2)
    store = TokenStore.write(
        path, [TokenColumnSpec(name, 60_000) for name in ("source", "target")], [[source, target]], fingerprint=""
    )
    return store, source, target


def batches(store: TokenStore) -> list[tuple[Placement, Seq2SeqBatch]]:
    order = PackedOrder(store.lengths("source", "target", n_special_tokens=1), (20, 24), 6, seed=0)
    sides = store["source"], store["target"]
    return [(p, build_seq2seq_batch(*sides, p, pad_id=PAD, sos_id=SOS, eos_id=EOS)) for p in order.iterate_epoch()]


def test_seq2seq_batch_of_pairs(tmp_path: Path) -> None:
    store, source, target = pair_store(tmp_path / "store")
    for placement, batch in batches(store):
        assert parts(batch.source) == plain_rows(source, placement, 20, None, EOS)
        assert parts(batch.target_in) == plain_rows(target, placement, 24, SOS, None)
        out, segment, _ = plain_rows(target, placement, 24, None, EOS)
        assert segment == batch.target_in.segment.tolist()
        assert torch.equal(batch.target_out == IGNORE, batch.target_in.segment == 0)
        assert torch.where(batch.target_out == IGNORE, PAD, batch.target_out).tolist() == out
        assert batch.n_tokens == int((batch.target_out != IGNORE).sum())
        assert batch.target_out.dtype == torch.int64  # as cross_entropy wants it


def test_both_sides_of_a_pair_have_the_same_segment(tmp_path: Path) -> None:
    store, source, _ = pair_store(tmp_path / "store")
    for placement, batch in batches(store):
        for row in range(placement.n_rows):
            mine = placement.items[placement.rows == row].tolist()
            for number, item in enumerate(mine, start=1):
                ids = batch.source.ids[row][batch.source.segment[row] == number]
                assert ids.tolist() == [*source[item], EOS]
                assert (batch.target_in.segment[row] == number).sum() == len(store["target"][item]) + 1


def test_every_batch_has_the_same_shape(tmp_path: Path) -> None:
    shapes = {(b.source.ids.shape, b.target_in.ids.shape) for _, b in batches(pair_store(tmp_path / "store")[0])}
    assert shapes == {((6, 20), (6, 24))}


def test_batch_moves_to_a_device_as_one(tmp_path: Path) -> None:
    batch = batches(pair_store(tmp_path / "store")[0])[0][1]
    moved = batch.to("meta")
    tensors = (moved.source.ids, moved.source.position, moved.target_in.segment, moved.target_out)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.n_tokens == batch.n_tokens


def test_causal_lm_labels_equal_the_plain_definition() -> None:
    sentences = [[7, *ids, 9] for ids in random_sentences(60)]
    lengths = np.array([[len(ids) - 1] for ids in sentences])
    for placement in PackedOrder(lengths, [17], 4, seed=3).iterate_epoch():
        batch = build_causal_lm_batch(
            LanguageModelWindows(Column.from_sentences(sentences, "uint16"), 17), placement, pad_id=PAD
        )
        before, after = ([ids[:-1] for ids in sentences], [ids[1:] for ids in sentences])
        assert parts(batch.rows) == plain_rows(before, placement, 17, None, None)
        expected, segments, _ = plain_rows(after, placement, 17, None, None)
        pairs = zip(np.array(expected).flatten(), np.array(segments).flatten(), strict=True)
        assert batch.labels.flatten().tolist() == [token if segment else IGNORE for token, segment in pairs]
        assert batch.labels.dtype == torch.int64
        assert batch.n_tokens == batch.n_input_tokens == int((batch.labels != IGNORE).sum())


def test_one_sentence_per_row() -> None:
    rows = sentences_to_rows([[5, 6, 7], [8], []], prefix_id=SOS, suffix_id=EOS, pad_id=PAD)
    assert rows.ids.tolist() == [[1, 5, 6, 7, 2], [1, 8, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert rows.segment.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert rows.position.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 0], [0, 1, 0, 0, 0]]


@pytest.mark.parametrize(("sentences", "shape"), [([], (0, 0)), ([[]], (1, 0)), ([[4, 5]], (1, 2))])
def test_few_sentences(sentences: list[list[int]], shape: tuple[int, int]) -> None:
    assert sentences_to_rows(sentences, pad_id=PAD).ids.shape == shape
