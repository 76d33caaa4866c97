"""The Transformer encoder with heads (BERT, Devlin et al. 2019; in one direction: GPT, Radford et al. 2018).

One encoder serves every task; a head is a module under `heads`, identified by its name, and an encoder without heads
gives embeddings. Fine-tuning initialises only the heads that the pretrained model lacks or has in another shape.

    directions = "both"       a token attends to all tokens of its text
                 "forward"    to itself and those before it: the layers of a language model (models/lm_encoder.py)
                 "backward"   to itself and those after it; positions are counted from the end of the text
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows, SegmentedRows
from regard.models.blocks import build_embedding, build_encoder_layer, build_final_norm
from regard.models.config import TransformerEncoderConfig
from regard.models.interfaces import EncoderModel
from regard.nn import AttentionMask, EncoderStack, PackedPositions, make_mask
from regard.nn.mask import SelfAttentionLayout


class TransformerEncoder(EncoderModel):
    """An encoder, bidirectional or of one direction."""

    config: TransformerEncoderConfig

    def __init__(self, config: TransformerEncoderConfig, vocabulary_size: int, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_embedding(config, vocabulary_size, config.n_parts)
        self.encoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))
        self.encoder_norm = build_final_norm(config)
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        """Return the last hidden states; with `lengths`, of one row filled by texts of these lengths."""
        rows = self._orient(rows)
        encoded: Tensor = self.encoder_norm(self.encoder(self.embed(rows), self._make_mask(rows, lengths)))
        return encoded

    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        """Yield the embeddings, then the output of each layer, the last one after the final norm."""
        rows = self._orient(rows)
        x, attention_mask = self.embed(rows), self._make_mask(rows, lengths)
        yield x
        for number, layer in enumerate(self.encoder, 1):
            x = layer(x, attention_mask)
            yield x if number < len(self.encoder) else self.encoder_norm(x)

    def _orient(self, rows: SegmentedRows) -> SegmentedRows:
        """Return the rows with positions counted in the direction of reading."""
        return replace(rows, position=reverse_positions(rows)) if self.config.reads_backward else rows

    def _make_mask(self, rows: SegmentedRows, lengths: Sequence[int]) -> AttentionMask:
        if self.config.is_causal:
            mask = make_mask(PackedPositions(rows.segment, rows.position), causal=True)
            # Kernels rely on ascending positions; without the layout they use the mask itself.
            return mask._replace(layout=None) if self.config.reads_backward else mask
        if not lengths:
            return make_mask(PackedPositions(rows.segment, rows.position))
        layout = SelfAttentionLayout(PackedPositions(rows.segment, rows.position), causal=False)
        return AttentionMask(rows.position, rows.position, lengths=tuple(lengths), layout=layout)


def reverse_positions(rows: Rows) -> Int[Tensor, "B T"]:
    """Return positions counted from the end of each text; those of padding stay 0."""
    same_text = rows.segment[:, :, None] == rows.segment[:, None, :]
    last = torch.where(same_text, rows.position[:, None, :], 0).amax(-1)
    return torch.where(rows.segment > 0, last - rows.position, 0)
