"""The Transformer encoder by itself, with heads on it (BERT, Devlin et al. 2019): SPEC 4.6, 4.7, 4.9-4.11.

One body serves every task; a head is a module under `heads`, known by its name, and a body without heads gives
vectors. Weights of a head that a model lacks, or has in another shape, are the only ones that fine-tuning draws anew.
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
    """Reads texts, each token seeing all of its own; `heads` make something of what it read."""

    config: TransformerEncoderConfig

    def __init__(self, config: TransformerEncoderConfig, vocabulary_size: int, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_embedding(config, vocabulary_size, config.n_parts)
        self.encoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))
        self.encoder_norm = build_final_norm(config)
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        """What the encoder makes of each token; with `lengths`, of one row that is filled by texts so long."""
        encoded: Tensor = self.encoder_norm(self.encoder(self.embed(rows), _make_mask(rows, lengths)))
        return encoded

    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        """What enters the layers, then what leaves each of them, the last through what ends the stack."""
        x, sight = self.embed(rows), _make_mask(rows, lengths)
        yield x
        for number, layer in enumerate(self.encoder, 1):
            x = layer(x, sight)
            yield x if number < len(self.encoder) else self.encoder_norm(x)


def _make_mask(rows: SegmentedRows, lengths: Sequence[int]) -> AttentionMask:
    place = PackedPositions(rows.segment, rows.position)
    if not lengths:
        return make_mask(place)
    return AttentionMask(rows.position, rows.position, lengths=tuple(lengths))
