"""Vectors of the texts of packed rows, with or without a gradient cache.

GradCache (Gao, Zhang et al. 2021): a contrastive loss needs the vectors of the whole batch at once, but not the
activations in between. With a cache the rows are encoded in chunks of which only the vectors are kept; the backward
pass runs each chunk forward again, with the same dropout, and through it backward. The gradient is the same, and a
batch takes the memory of one chunk. torch's activation checkpointing does this for any function; here the function is a
chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from regard.data.batches import SegmentedRows
from regard.models.heads import Pooling
from regard.models.interfaces import EncoderModel


def pool_text_vectors(
    model: EncoderModel, pooling: Pooling, rows: SegmentedRows, n_texts: int, chunk_tokens: int = 0
) -> Float[Tensor, "B S D"]:
    """Return the vector of each of the first `n_texts` texts of each row, zeros where there are fewer.

    Rows are encoded `chunk_tokens` tokens at a time, at least one row; 0 encodes them all at once.
    """
    n_rows, width = rows.ids.shape
    rows_per_chunk = max(1, chunk_tokens // width) if chunk_tokens else n_rows
    if rows_per_chunk >= n_rows:
        vectors: Tensor = pooling(model.features(rows), rows, n_texts)
        return vectors

    def encode(chunk: SegmentedRows) -> Float[Tensor, "B S D"]:
        pooled: Tensor = pooling(model.features(chunk), chunk, n_texts)
        return pooled

    chunks = _split_rows(rows, rows_per_chunk)
    if not torch.is_grad_enabled():
        return torch.cat([encode(chunk) for chunk in chunks])
    # A compiled graph has the weights it runs on as its inputs; an eager backward pass has to be given them.
    cached = encode if torch.compiler.is_compiling() else _ChunkEncoder(model, pooling, n_texts)
    return torch.cat([checkpoint(cached, chunk, use_reentrant=False) for chunk in chunks])


class _ChunkEncoder:
    """Encodes chunks with the weights that the model has now.

    In bfloat16 the model runs on a copy of its weights that is gone by the time of the backward pass.
    """

    def __init__(self, model: EncoderModel, pooling: Pooling, n_texts: int) -> None:
        self._features, self._pooling, self._n_texts = _Features(model), pooling, n_texts
        self._weights: dict[str, Tensor] = dict(self._features.named_parameters())

    def __call__(self, rows: SegmentedRows) -> Float[Tensor, "B S D"]:
        hidden = functional_call(self._features, self._weights, (rows,))
        vectors: Tensor = self._pooling(hidden, rows, self._n_texts)
        return vectors


class _Features(nn.Module):
    """The features of a model as a module's forward, which is what torch can call with other weights."""

    def __init__(self, model: EncoderModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: SegmentedRows) -> Float[Tensor, "B T W"]:
        return self.model.features(rows)


def _split_rows(rows: SegmentedRows, rows_per_chunk: int) -> Iterator[SegmentedRows]:
    parts = (each.split(rows_per_chunk) for each in (rows.ids, rows.segment, rows.position, rows.token_type_ids))
    return (SegmentedRows(*chunk) for chunk in zip(*parts, strict=True))
