"""What a model must be able to do for each kind of work, whatever it is made of; families.py names those there are.

Tasks, generation, the viewer and the API know models by these alone. They also know the names of some of their parts:
`encoder` and `decoder` are lists of layers, each with a tap `out`, and a layer's attention is called `attention` or
`cross_attention` (look/compute/look_target.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows, SegmentedRows
from regard.models.config import EncoderModelConfig, ModelConfig
from regard.nn import Loss, TokenEmbedding, linear_cross_entropy


class Seq2SeqModel(nn.Module, ABC):
    """Reads a source and writes a target; `start` and `step` write it token by token."""

    config: ModelConfig
    softmax_embedding: nn.Embedding
    output_bias: nn.Parameter | None

    def forward(self, source: Rows, target_in: Rows) -> Float[Tensor, "B T V"]:
        """The logits of each next target token, given those before it and the whole source."""
        return self.logits(self.hidden_states(source, target_in))

    def hidden_states(self, source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        """What the decoder makes of each target token, from the sources themselves."""
        return self.decode(self.encode(source), source, target_in)

    @abstractmethod
    def encode(self, source: Rows) -> Float[Tensor, "B S D"]:
        """What the encoder makes of each source token."""

    @abstractmethod
    def decode(self, encoded: Float[Tensor, "B S D"], source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        """What the decoder makes of each target token, all at once."""

    def logits(self, decoded: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Scores of every token of the target vocabulary."""
        return F.linear(decoded, self.softmax_embedding.weight, self.output_bias)

    @abstractmethod
    def start(self, source: Rows) -> Any:
        """Read sources, one sentence per row, and be ready to write: what is remembered, which has `select`."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " N"], state: Any) -> Float[Tensor, "N V"]:
        """Write one more token of each continuation, W of each sentence in turn, and give the logits of the next."""


class EncoderModel(nn.Module, ABC):
    """Reads texts; `heads` make something of what it read."""

    config: EncoderModelConfig
    embedding: TokenEmbedding
    encoder: nn.ModuleList
    heads: nn.ModuleDict

    @abstractmethod
    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        """What becomes of each token; with `lengths`, of those of one row that is filled by texts so long."""

    @abstractmethod
    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        """What enters the layers, then what leaves each of them, the last as `forward` gives it."""

    def embed(self, rows: SegmentedRows) -> Float[Tensor, "B T D"]:
        """What enters the layers; where a model does not tell the parts of pairs apart, all is of one part."""
        part = rows.token_type_ids if self.config.n_parts > 1 else torch.zeros_like(rows.token_type_ids)
        entering: Tensor = self.embedding(rows.ids, rows.position, part)
        return entering


class CausalLM(nn.Module, ABC):
    """Reads a text from the left and says what comes next; `start` and `step` go on with it token by token."""

    config: ModelConfig
    softmax_embedding: nn.Embedding

    @property
    def context_length(self) -> int | None:
        """Tokens of a text that it sees at once, the last of a longer prompt; None where there is no limit."""
        return None

    def forward(self, rows: Rows) -> Float[Tensor, "B T V"]:
        """The logits of the token after each."""
        return self.logits(self.hidden_states(rows))

    @abstractmethod
    def hidden_states(self, rows: Rows) -> Float[Tensor, "B T D"]:
        """What the model makes of each token, given those before it."""

    def logits(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Scores of every token of the vocabulary."""
        return F.linear(hidden, self.softmax_embedding.weight)

    def loss(self, rows: Rows, labels: Int[Tensor, "B T"]) -> Loss:
        """The negative log-likelihood of the tokens that follow, without the logits of all at once."""
        return linear_cross_entropy(self.hidden_states(rows), self.softmax_embedding.weight, labels)

    @abstractmethod
    def start(self, rows: Rows) -> Any:
        """Read the texts that are to be gone on with, one per row, each but for its last token."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " N"], state: Any) -> Float[Tensor, "N V"]:
        """Write one more token of each text, and give the logits of the next."""
