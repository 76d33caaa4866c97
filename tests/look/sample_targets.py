"""Small models with a text, ready to be looked into."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.data.batches import sentences_to_rows
from regard.look.compute.look_target import LookTarget, Side
from regard.models.blocks import build_embedding, build_encoder_layer, initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import EncoderStack, PackedPositions, Tap, make_mask
from regard.text.subwords import Word
from regard.text.tokenizer import EOS, PAD, SOS


def translator(source: int = 4, target: int = 3, seed: int = 0, **shape: object) -> LookTarget:
    """An encoder-decoder in float64 with sentences of so many tokens, ``<eos>`` and ``<sos>`` included."""
    small = {"d_model": 8, "n_layers": 2, "n_decoder_layers": 2, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": "tiny", **small, **shape}))
    model = TransformerSeq2Seq(config, 20, 20, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(seed))
    model.double().eval()
    ids = torch.randint(3, 20, (source + target,), generator=torch.Generator().manual_seed(seed + 1)).tolist()
    source_ids, target_ids = ids[: source - 1], ids[source : source + target - 1]
    rows = sentences_to_rows([source_ids], suffix_id=EOS, pad_id=PAD)
    target_in = sentences_to_rows([target_ids], prefix_id=SOS, pad_id=PAD)
    sides = {
        "encoder": _side([*source_ids, EOS], "source_embedding.out"),
        "decoder": _side([SOS, *target_ids], "target_embedding.out"),
    }
    return LookTarget(
        model,
        sides,
        run_layers=lambda: model.hidden_states(rows, target_in),
        head=model.logits,
        predicted_ids=torch.tensor([*target_ids, EOS]),
    )


class OneStack(nn.Module):
    """A stack of self-attention under the name of an encoder (sees all) or a decoder (sees what came), and a head."""

    def __init__(self, stack: str, config: TransformerSeq2SeqConfig) -> None:
        super().__init__()
        self.stack = stack
        self.embedding = build_embedding(config, 20)
        self.add_module(stack, EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers)))
        self.head = nn.Linear(config.d_model, 20)

    def forward(self, ids: Tensor) -> Tensor:
        place = PackedPositions(torch.ones_like(ids), torch.arange(ids.shape[1])[None])
        mask = make_mask(place, place, causal=self.stack == "decoder")
        encoded: Tensor = self.get_submodule(self.stack)(self.embedding(ids, place.position), mask)
        return encoded


def one_stack(stack: str = "encoder", tokens: int = 4, seed: int = 0, **shape: object) -> LookTarget:
    """An encoder that says something of every token, or a decoder (a language model), in float64."""
    small = {"d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 12, "dropout": 0.0, "norm": "post"}
    model = OneStack(stack, TransformerSeq2SeqConfig(**apply_preset({"preset": "tiny", **small, **shape})))
    initialise_weights(model, torch.Generator().manual_seed(seed))
    model.double().eval()
    ids = torch.randint(3, 20, (1, tokens), generator=torch.Generator().manual_seed(seed + 1))
    predicted_ids = torch.randint(3, 20, (tokens,), generator=torch.Generator().manual_seed(seed + 2))
    sides = {stack: _side(ids[0].tolist(), "embedding.out")}
    return LookTarget(model, sides, run_layers=lambda: model(ids), head=model.head, predicted_ids=predicted_ids)


class OnlyOne(nn.Module):
    """Whatever it says, it says because of one of its inputs; without attention, without layers."""

    def __init__(self, decisive: int) -> None:
        super().__init__()
        self.decisive = decisive
        self.entrance, self.head = Tap(), nn.Linear(8, 20)

    def forward(self, x: Tensor) -> Tensor:
        entered: Tensor = self.entrance(x)
        return entered[:, self.decisive, None].expand_as(x)


def only_one(tokens: int, decisive: int) -> LookTarget:
    """A text of which one token alone decides, and what the model then finds most probable."""
    generator = torch.Generator().manual_seed(0)
    model, x = OnlyOne(decisive).double(), torch.randn(1, tokens, 8, generator=generator, dtype=torch.float64)
    model.head.weight.data.normal_(generator=generator)
    sides = {"encoder": _side(list(range(tokens)), "entrance")}
    likely = model.head(model(x))[0].argmax(-1)
    return LookTarget(model, sides, run_layers=lambda: model(x), head=model.head, predicted_ids=likely)


def _side(ids: list[int], entrance: str) -> Side:
    return Side([f"t{i}" for i in ids], [Word(f"t{i}", (place,)) for place, i in enumerate(ids)], entrance)
