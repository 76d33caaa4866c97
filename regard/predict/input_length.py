"""The check that an input fits the positions of a model; called by predictors and the API before a model runs."""

from __future__ import annotations

from regard.errors import InputError


def check_fits(n_tokens: int, max_tokens: int, *, text: str = "the text", fix: str = "split it") -> None:
    """Raise an error if an input of `n_tokens` is longer than `max_tokens`; `text` names it in the message."""
    if n_tokens > max_tokens:
        raise InputError(f"{text} has {n_tokens:,} tokens; this model takes at most {max_tokens:,}; {fix}")
