"""Interfaces of the three kinds of models: sequence to sequence, encoder, causal language model.

Tasks, generation, regard.look and the API use models through these alone; architectures.py lists the implementations.
regard.look also relies on module names: `encoder` and `decoder` are lists of layers, each with a tap `out`, and the
attention of a layer is called `attention` or `cross_attention` (look/compute/look_target.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows, SegmentedRows
from regard.models.config import EncoderModelConfig, ModelConfig
from regard.models.layer_combination import COMBINATION_NAME
from regard.nn import Loss, OutputEmbedding, TokenEmbedding


class Seq2SeqModel(nn.Module, ABC):
    """Encodes a source and predicts a target; `start` and `step` decode it token by token."""

    config: ModelConfig
    softmax_embedding: OutputEmbedding
    output_bias: nn.Parameter | None

    def forward(self, source: Rows, target_in: Rows) -> Float[Tensor, "B T V"]:
        """Return the logits of each next target token, given those before it and the whole source."""
        return self.logits(self.hidden_states(source, target_in))

    def hidden_states(self, source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        """Return the last hidden states of the decoder, encoding the source first."""
        return self.decode(self.encode(source), source, target_in)

    @abstractmethod
    def encode(self, source: Rows) -> Float[Tensor, "B S D"]:
        """Return the last hidden states of the encoder."""

    @abstractmethod
    def decode(self, encoded: Float[Tensor, "B S D"], source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        """Return the last hidden states of the decoder for all target tokens (teacher forcing)."""

    def logits(self, decoded: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Return logits over the target vocabulary."""
        return self.softmax_embedding.logits(decoded, self.output_bias)

    @abstractmethod
    def start(self, source: Rows) -> Any:
        """Encode sources, one sentence per row, and return the decoder state, which has `select`."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " N"], state: Any) -> Float[Tensor, "N V"]:
        """Append one token to each hypothesis, W of each sentence in turn, and return the logits of the next."""

    @property
    def has_static_state(self) -> bool:
        """Return True if `make_static_state` can be called, for steps to be captured as a CUDA graph."""
        return False

    def make_static_state(self, state: Any, *, n_slots: int, width: int, n_source: int, max_length: int) -> Any:
        """Return a decoder state of fixed size, which has `load` and `reorder`, for sentences like those of a state."""
        raise NotImplementedError


class EncoderModel(nn.Module, ABC):
    """Encodes texts; `heads` turn the hidden states into predictions."""

    config: EncoderModelConfig
    embedding: TokenEmbedding
    encoder: nn.ModuleList
    heads: nn.ModuleDict

    @abstractmethod
    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        """Return the last hidden states; with `lengths`, of one row filled by texts of these lengths."""

    @abstractmethod
    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        """Yield the embeddings, then the output of each layer; the last one equals the result of `forward`."""

    def features(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T W"]:
        """Return the input of the heads: the last hidden states, or a combination of layers if the model has one."""
        if COMBINATION_NAME not in self.heads:
            last: Tensor = self(rows, lengths)
            return last
        combined: Tensor = self.heads[COMBINATION_NAME](list(self.iter_hidden_states(rows, lengths)))
        return combined

    def embed(self, rows: SegmentedRows) -> Float[Tensor, "B T D"]:
        """Return the input embeddings; a model with fewer than two token types treats all tokens as type 0."""
        token_types = rows.token_type_ids if self.config.n_parts > 1 else torch.zeros_like(rows.token_type_ids)
        embedded: Tensor = self.embedding(rows.ids, rows.position, token_types)
        return embedded


class CausalLM(nn.Module, ABC):
    """Predicts each next token of a text; `start` and `step` generate token by token."""

    config: ModelConfig
    softmax_embedding: OutputEmbedding

    @property
    def context_length(self) -> int | None:
        """The longest context in tokens, to which longer prompts are cut from the left; None without a limit."""
        return None

    def forward(self, rows: Rows) -> Float[Tensor, "B T V"]:
        """Return the logits of the next token at each position."""
        return self.logits(self.hidden_states(rows))

    @abstractmethod
    def hidden_states(self, rows: Rows) -> Float[Tensor, "B T D"]:
        """Return the last hidden states."""

    def logits(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Return logits over the vocabulary."""
        return self.softmax_embedding.logits(hidden)

    def loss(self, rows: Rows, labels: Int[Tensor, "B T"]) -> Loss:
        """Return the cross-entropy of the labels without materialising the logits of the whole batch."""
        return self.softmax_embedding.cross_entropy(self.hidden_states(rows), labels)

    @abstractmethod
    def start(self, rows: Rows) -> Any:
        """Encode the prompts, one per row, each without its last token, and return the decoder state."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " N"], state: Any) -> Float[Tensor, "N V"]:
        """Append one token to each text and return the logits of the next."""
