"""The selection a page opens with: the attention and the tokens that say most about the prediction.

Translators open at cross-attention and a content word, classifiers at the token the class is read from, language
models at the next token, masked language models at the mask.
"""

from __future__ import annotations

import re

import torch

from regard.look.compute.look_target import LookTarget
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.view_data import Focus

SPECIAL_TOKEN = re.compile(r"<[^<>]+>|\[[A-Z]+\]")
MASK_TOKENS = ("[MASK]", "<mask>")


def default_focus(analysis: TextAnalysis) -> Focus:
    """Return the selection a page of this analysis opens with."""
    tokens = {name: focus_token(analysis.look_target, name) for name in analysis.look_target.sides}
    if analysis.look_target.output_side:
        tokens[analysis.look_target.output_side] = longest_content_token(analysis.look_target.output_labels)
    if not analysis.kinds:
        return Focus(tokens=tokens)
    kind = analysis.kinds[-1]  # cross-attention where there is some
    weights = analysis.attention(kind)
    head = int(weights[-1].amax(-1).mean(-1).argmax())
    return Focus(kind, len(weights) - 1, head, tokens)


def focus_output(look_target: LookTarget) -> int | None:
    """Return the one output that is the prediction: a class, a masked token or the next token; None if all are."""
    if look_target.output_labels:
        return None if look_target.output_side else 0
    if "encoder" in look_target.sides:
        masks = [i for i, token in enumerate(look_target.sides["encoder"].tokens) if token in MASK_TOKENS]
        return masks[0] if masks and len(look_target.sides) == 1 else None
    return len(look_target.sides["decoder"].tokens) - 1


def focus_token(look_target: LookTarget, side: str) -> int:
    """Return the token of a side whose output a page opens with."""
    tokens = look_target.sides[side].tokens
    last = list(look_target.sides)[-1]
    if side == last and look_target.output_token_weights is not None:
        output = longest_content_token(look_target.output_labels) if look_target.output_side else 0
        return int(look_target.output_token_weights()[output].argmax())
    if side == last and (output_index := focus_output(look_target)) is not None:
        return output_index
    return longest_content_token(look_target.sides[side].next_tokens or tokens)


def longest_content_token(tokens: tuple[str, ...] | list[str]) -> int:
    """Return the index of the longest token that is not a special one; the first of several."""
    lengths = torch.tensor([0 if is_special_token(token) else len(token.strip("▁ #")) for token in tokens])
    return int(lengths.argmax()) if len(tokens) else 0


def is_special_token(token: str) -> bool:
    """Return True for names like ``<eos>`` or ``[CLS]``."""
    return SPECIAL_TOKEN.fullmatch(token) is not None
