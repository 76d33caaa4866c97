"""Mask filling by a pre-trained encoder: the most likely tokens where a text has [MASK].

Each mask is predicted separately, and the text of a predicted token is inserted with the spacing of its position. The
API calls `MaskFiller`; tasks/pretrain.py scores masked tokens with `compute_masked_lm_logits`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.models.finite_outputs import check_finite
from regard.models.interfaces import EncoderModel
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.input_length import check_fits
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer

MASK_TEXT = "[MASK]"
SPACE_MARKER = "▁"
"""The character that stands for a space in a token."""

NO_MASKED_HEAD_MESSAGE = "this model has no head for masked words; it gives vectors: use embed, match or look"

Ids = list[int]


@dataclass(frozen=True)
class MaskPrediction:
    """A word for a mask: how probable it is, and the text with it."""

    word: str
    probability: float
    text: str


class MaskFiller:
    """An encoder with its vocabulary, on a device; `mask_id` is -1 where it has no head for masked words."""

    def __init__(self, model: EncoderModel, tokenizer: Tokenizer, device: torch.device) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self.template = SpecialTokenTemplate.from_tokenizer(tokenizer)
        self.mask_id = tokenizer.special_id("mask") if "masked" in model.heads else -1

    def fill(self, text: str, k: int) -> list[list[MaskPrediction]]:
        """Return the k most likely tokens for each mask of a text, each with the text in which it fills the mask."""
        encoded = self.encode_masked(text)
        check_fits(len(encoded.ids), self.model.config.n_positions, fix="leave out what is far from the mask")
        rows = inputs_to_rows([encoded], self.template.pad_id).to(self.device)
        mask_positions = [position for position, index in enumerate(encoded.ids) if index == self.mask_id]
        with torch.inference_mode():
            logits = compute_masked_lm_logits(self.model, self.model(rows)[0, mask_positions])
            probabilities = check_finite(logits.float().cpu()).softmax(-1)
        likely = probabilities.topk(min(k, probabilities.shape[-1]))
        parts, predictions = self._split_at_masks(text), []
        for number, (top_probabilities, indices) in enumerate(zip(*likely, strict=True)):
            before, after = "".join(parts[: 2 * number + 1]), "".join(parts[2 * number + 2 :])
            texts = [self._append_token(before, index) + after for index in indices.tolist()]
            words = [token.lstrip(SPACE_MARKER) for token in self.tokenizer.display_tokens(indices.tolist())]
            filled = zip(words, top_probabilities.tolist(), texts, strict=True)
            predictions.append([MaskPrediction(*each) for each in filled])
        return predictions

    def has_mask(self, text: str) -> bool:
        """Return True if a text has a mask, and the model a head for it."""
        return self.mask_id >= 0 and len(self._split_at_masks(text)) > 1

    def encode_masked(self, text: str) -> EncodedInput:
        """Return the input of a text with masks, written as [MASK] or as the vocabulary's own mask token."""
        if self.mask_id < 0:
            raise InputError(NO_MASKED_HEAD_MESSAGE)
        if not self.has_mask(text):
            raise InputError(f"no {MASK_TEXT} in '{text[:40]}'; put it where a word is to be predicted")
        parts = self._split_at_masks(text)[::2]
        ids = self.tokenizer.encode(parts[0].rstrip()) if parts[0].strip() else []
        for part in parts[1:]:
            ids += [self.mask_id, *self._encode_after_mask(part)]
        return self.template.wrap(ids)

    def _split_at_masks(self, text: str) -> list[str]:
        """Return the text split at its masks, with them: text, mask, text, ..., text."""
        mask_token = self.tokenizer.display_tokens([self.mask_id])[0]
        return re.split(f"({re.escape(MASK_TEXT)}|{re.escape(mask_token)})", text)

    def _encode_after_mask(self, part: str) -> Ids:
        return self.tokenizer.encode_continuation(part.rstrip() if part.strip() else "")

    def _append_token(self, before: str, token_id: int) -> str:
        """Return the text before a mask with a token appended; a continuation subword is joined to its word."""
        tokenizer = self.tokenizer
        word, touching = tokenizer.words([token_id])[0].text.strip(SPACE_MARKER), before and not before[-1].isspace()
        if before.strip() and len(tokenizer.words([token_id, token_id])) == 1:
            before = before.rstrip()
        elif touching and (
            tokenizer.display_tokens([token_id])[0].startswith(SPACE_MARKER)
            or (before[-1].isalnum() and word[:1].isalnum())
        ):
            before += " "
        return before + word


def compute_masked_lm_logits(model: EncoderModel, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
    """Return the vocabulary logits of hidden states."""
    if "masked" not in model.heads:
        raise InputError(NO_MASKED_HEAD_MESSAGE)
    logits: Tensor = model.heads["masked"](hidden, model.embedding.tokens.weight)
    return logits
