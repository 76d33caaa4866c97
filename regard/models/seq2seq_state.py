"""Decoder states of the Transformer encoder-decoder: what is cached of sentences with several hypotheses each.

The hypotheses (beams) of a sentence share one row of the KV cache, and no cached token is moved when some are dropped
and others branch: `ancestor_mask` marks the cached tokens that belong to the prefix of each hypothesis.

    cached            <sos> | Je  Il | vais  suis | ...          W tokens a step
    ancestor_mask 0     x   |  x     |  x         |              <sos> Je vais
                  1     x   |  x     |        x   |              <sos> Je suis

`Seq2SeqDecoderState` grows with every token; sentences can leave it, and others join it. `StaticSeq2SeqState` is its
counterpart with tensors that neither move nor grow, as a CUDA graph needs: its sentences are slots to be filled anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from regard.models.source_rows import (
    complete_mask,
    extend_key_values,
    extend_mask_rows,
    fit_columns,
    select_mask_rows,
)
from regard.nn import AttentionMask, KeyValue, KVCache, OutputProjection, StaticBeamKVCache, allocate_key_values
from regard.nn.kernels.workspace import Workspace


@dataclass
class Seq2SeqDecoderState:
    """The decoder state of B sentences with W hypotheses each, K cached tokens, and sources of at most S.

    Sentences that joined later have fewer cached tokens: theirs are the last `n_cached`, those before are masked.
    """

    cross_kv: list[KeyValue]
    cross_attention_mask: AttentionMask
    caches: list[KVCache]
    ancestor_mask: Bool[Tensor, "B W K"]
    key_position: Int[Tensor, "B K"]
    lengths: Int[Tensor, " B"]
    n_cached: Int[Tensor, " B"]
    output_projection: OutputProjection
    needs_mask: bool = False
    is_padded: bool = False
    workspace: Workspace = field(default_factory=Workspace)

    @property
    def length(self) -> int:
        """The number of tokens of the longest hypothesis."""
        return int(self.lengths.max()) if len(self.lengths) else 0

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep these hypotheses, numbered over all sentences; each row of `rows` is those of one sentence."""
        width = self.ancestor_mask.shape[1]
        sentences = rows[:, 0] // width
        self.needs_mask |= rows.shape[1] > 1
        self.ancestor_mask = self.ancestor_mask[sentences[:, None], rows % width]
        if not torch.equal(sentences, torch.arange(len(self.lengths), device=rows.device)):
            self._select_sentences(sentences)

    def _select_sentences(self, sentences: Int[Tensor, " N"]) -> None:
        self.cross_kv = [kv.select(sentences) for kv in self.cross_kv]
        self.cross_attention_mask = select_mask_rows(self.cross_attention_mask, sentences)
        self.key_position, self.lengths = self.key_position[sentences], self.lengths[sentences]
        self.n_cached = self.n_cached[sentences]
        for cache in self.caches:
            cache.select(sentences)
        if self.is_padded:
            self._trim()

    def _trim(self) -> None:
        """Drop the cached tokens and the ends of sources that no sentence needs any more."""
        fewest, most = (int(each) for each in self.n_cached.aminmax())
        unused = self.ancestor_mask.shape[2] - most
        if unused:
            self.ancestor_mask, self.key_position = self.ancestor_mask[..., unused:], self.key_position[:, unused:]
            for cache in self.caches:
                cache.drop_first(unused)
        self.is_padded = fewest < most

    def extend(self, other: Seq2SeqDecoderState) -> None:
        """Let the sentences of another state join, which has as many hypotheses of each."""
        columns = max(self.ancestor_mask.shape[2], other.ancestor_mask.shape[2])
        self.ancestor_mask = torch.cat([_pad_left(each.ancestor_mask, columns) for each in (self, other)])
        self.key_position = torch.cat([_pad_left(each.key_position, columns) for each in (self, other)])
        self.lengths = torch.cat((self.lengths, other.lengths))
        self.n_cached = torch.cat((self.n_cached, other.n_cached))
        for cache, joining in zip(self.caches, other.caches, strict=True):
            cache.extend(joining)
        self._extend_sources(other)
        self.needs_mask = self.is_padded = True
        self._trim()

    def _extend_sources(self, other: Seq2SeqDecoderState) -> None:
        self.cross_attention_mask = extend_mask_rows(self.cross_attention_mask, other.cross_attention_mask)
        n_keys = self.cross_attention_mask.key_position.shape[1]
        pairs = zip(self.cross_kv, other.cross_kv, strict=True)
        self.cross_kv = [extend_key_values(one, joining, n_keys) for one, joining in pairs]

    def append_step(self) -> AttentionMask:
        """Return the mask of the next tokens: each attends to itself and to the prefix of its hypothesis."""
        b, w, _ = self.ancestor_mask.shape
        now = self.lengths[:, None].expand(-1, w)
        itself = torch.eye(w, dtype=torch.bool, device=self.ancestor_mask.device).expand(b, -1, -1)
        self.ancestor_mask = torch.cat((self.ancestor_mask, itself), -1)
        self.key_position = torch.cat((self.key_position, now), 1)
        self.lengths, self.n_cached = self.lengths + 1, self.n_cached + w
        return AttentionMask(now, self.key_position, self.ancestor_mask[:, None] if self.needs_mask else None)


class StaticSeq2SeqState:
    """The decoder state of B slots of W hypotheses each, with room for S source tokens and `max_length` steps.

    A slot is filled by `load` and then written step by step; when it is full, its last step is written again. The
    states that are loaded are like `example`: they have as many tokens of a prefix.
    """

    def __init__(self, example: Seq2SeqDecoderState, n_slots: int, width: int, n_source: int, max_length: int) -> None:
        device, capacity = example.lengths.device, example.ancestor_mask.shape[2] + max_length
        self.width, self.capacity = width, capacity
        self.lengths = example.lengths.new_zeros(n_slots)
        self.ancestor_mask = torch.zeros(n_slots, width, capacity * width, dtype=torch.bool, device=device)
        self.caches = [StaticBeamKVCache(allocate_key_values(kv, n_slots, capacity * width)) for kv in example.cross_kv]
        self.cross_kv = [allocate_key_values(kv, n_slots, n_source) for kv in example.cross_kv]
        self._source_mask = torch.ones(n_slots, 1, 1, n_source, dtype=torch.bool, device=device)
        self.output_projection, self.workspace = example.output_projection, Workspace()
        self._slots = torch.arange(n_slots, device=device)[:, None]
        self._beams = torch.arange(width, device=device)[None]
        steps = torch.arange(capacity, device=device, dtype=self.lengths.dtype).repeat_interleave(width)
        self._key_position = steps.expand(n_slots, -1)
        self._source_position = torch.arange(n_source, device=device).expand(n_slots, -1)

    @property
    def cross_attention_mask(self) -> AttentionMask:
        """The mask of the source tokens of each slot."""
        position = self.lengths[:, None]
        return AttentionMask(position, self._source_position, self._source_mask)

    def load(self, slots: Int[Tensor, " N"], other: Seq2SeqDecoderState) -> None:
        """Fill slots with the sentences of another state, which have one hypothesis each."""
        self._load_sources(slots, other)
        self.lengths.index_copy_(0, slots, other.lengths)
        n_prefix = other.ancestor_mask.shape[2]
        prefix = torch.arange(n_prefix, device=slots.device) * self.width
        is_prefix = torch.zeros_like(self.ancestor_mask[0, 0]).index_fill_(0, prefix, True)
        self.ancestor_mask.index_copy_(0, slots, is_prefix.expand(len(slots), self.width, -1))
        if n_prefix:
            for cache, cached in zip(self.caches, other.caches, strict=True):
                cache.load(slots[:, None], prefix[None], cached.contents())

    def _load_sources(self, slots: Int[Tensor, " N"], other: Seq2SeqDecoderState) -> None:
        mask, fully_masked = complete_mask(other.cross_attention_mask)
        n_source = self._source_mask.shape[-1]
        self._source_mask.index_copy_(0, slots, fit_columns(mask, n_source, 3) | fully_masked)
        for kv, new in zip(self.cross_kv, other.cross_kv, strict=True):
            key, value = new.key, new.value.masked_fill(fully_masked, 0.0)
            for part, new_part in ((kv.key, key), (kv.value, value)):
                part[:, :, : new_part.shape[2]].index_copy_(0, slots, new_part)

    def reorder(self, parents: Int[Tensor, "B W"]) -> None:
        """Let each hypothesis continue another one of its sentence."""
        self.ancestor_mask.copy_(self.ancestor_mask[self._slots, parents])

    def append_step(self) -> AttentionMask:
        """Return the mask of the next tokens: each attends to itself and to the prefix of its hypothesis."""
        now = self.lengths[:, None].expand(-1, self.width).clone()
        columns = now * self.width + self._beams
        self.ancestor_mask.scatter_(2, columns[..., None], True)
        for cache in self.caches:
            cache.columns = columns
        self.lengths.add_(1).clamp_(max=self.capacity - 1)
        return AttentionMask(now, self._key_position, self.ancestor_mask[:, None])


def _pad_left(x: Shaped[Tensor, ...], n_columns: int) -> Tensor:
    """Return x with zeros before its columns."""
    return F.pad(x, (n_columns - x.shape[-1], 0))
