"""The Transformer encoder with heads (BERT, Devlin et al. 2019).

One encoder serves every task; a head is a module under `heads`, identified by its name, and an encoder without heads
gives embeddings. Fine-tuning initialises only the heads that the pretrained model lacks or has in another shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import SegmentedRows
from regard.models.blocks import build_embedding, build_encoder_layer, build_final_norm
from regard.models.config import TransformerEncoderConfig
from regard.models.interfaces import EncoderModel
from regard.nn import AttentionMask, EncoderStack, PackedPositions, make_mask


class TransformerEncoder(EncoderModel):
    """A bidirectional encoder: each token attends to all tokens of its text."""

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
        encoded: Tensor = self.encoder_norm(self.encoder(self.embed(rows), _make_mask(rows, lengths)))
        return encoded

    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        """Yield the embeddings, then the output of each layer, the last one after the final norm."""
        x, attention_mask = self.embed(rows), _make_mask(rows, lengths)
        yield x
        for number, layer in enumerate(self.encoder, 1):
            x = layer(x, attention_mask)
            yield x if number < len(self.encoder) else self.encoder_norm(x)


def _make_mask(rows: SegmentedRows, lengths: Sequence[int]) -> AttentionMask:
    if not lengths:
        return make_mask(PackedPositions(rows.segment, rows.position))
    return AttentionMask(rows.position, rows.position, lengths=tuple(lengths))
