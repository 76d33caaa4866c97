"""Small models with a text, ready to be looked into."""

from __future__ import annotations

import torch

from regard.data.batches import sentences_to_rows
from regard.look.subject import Side, Subject
from regard.models.blocks import initialise
from regard.models.presets import ModelConfig, with_preset
from regard.models.seq2seq import Seq2Seq
from regard.text.tokenizer import EOS, PAD, SOS, Word


def translator(source: int = 4, target: int = 3, seed: int = 0, **shape: object) -> Subject:
    """An encoder-decoder in float64 with sentences of so many tokens, ``<eos>`` and ``<sos>`` included."""
    small = {"d_model": 8, "n_layers": 2, "n_decoder_layers": 2, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
    config = ModelConfig(**with_preset({"preset": "tiny", **small, **shape}))
    model = Seq2Seq(config, 20, 20, joint=True)
    initialise(model, torch.Generator().manual_seed(seed))
    model.double().eval()
    ids = torch.randint(3, 20, (source + target,), generator=torch.Generator().manual_seed(seed + 1)).tolist()
    source_ids, target_ids = ids[: source - 1], ids[source : source + target - 1]
    rows = sentences_to_rows([source_ids], after=EOS, pad=PAD)
    target_in = sentences_to_rows([target_ids], before=SOS, pad=PAD)
    sides = {
        "encoder": _side([*source_ids, EOS], "source_embedding.out"),
        "decoder": _side([SOS, *target_ids], "target_embedding.out"),
    }
    return Subject(
        model,
        sides,
        body=lambda: model.decoded(rows, target_in),
        head=model.logits,
        predicted=torch.tensor([*target_ids, EOS]),
    )


def _side(ids: list[int], entrance: str) -> Side:
    return Side([f"t{i}" for i in ids], [Word(f"t{i}", (place,)) for place, i in enumerate(ids)], entrance)
