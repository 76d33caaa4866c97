"""Taps: named places where the inside of a model can be read or changed.

A `Tap` is an identity module; its name is its path in the model (``encoder.0.attention.weights``). `record` reads
what flows through the taps that match a pattern, `edit` replaces it, both only inside a ``with``. Attention asks
`Tap.heard` and computes explicit weights only when somebody listens, so training and serving pay nothing.
What was compiled runs uncompiled while somebody listens: compiled code does not notice new hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn


class Tap(nn.Module):
    """An identity with a name."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    @property
    def active(self) -> bool:
        """Somebody records or edits what flows here."""
        return bool(self._forward_hooks)


def taps(model: nn.Module, pattern: str = "*", *, required: bool = True) -> dict[str, Tap]:
    """The taps of a model whose name matches, in the order of the model; `*` matches any text."""
    every = {name: module for name, module in model.named_modules() if isinstance(module, Tap)}
    matching = {name: tap for name, tap in every.items() if fnmatchcase(name, pattern)}
    if required and not matching:
        raise LookupError(f"no tap matches '{pattern}'; this model has: {', '.join(every) or 'none'}")
    return matching


@contextmanager
def record(model: nn.Module, *patterns: str, required: bool = True) -> Iterator[dict[str, Tensor]]:
    """Collect, by name, what flowed through the matching taps last; if not `required`, there may be no match."""
    recorded: dict[str, Tensor] = {}

    def listener(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hear(_tap: nn.Module, _inputs: object, output: Tensor) -> None:
            recorded[name] = output

        return hear

    with _force_eager(), ExitStack() as stack:
        for pattern in patterns:
            for name, tap in taps(model, pattern, required=required).items():
                stack.enter_context(tap.register_forward_hook(listener(name)))
        yield recorded


@contextmanager
def edit(model: nn.Module, pattern: str, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace what flows through the matching taps by `change` of it: another tensor, not the same written over."""

    def replace(_tap: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return change(output)

    with _force_eager(), ExitStack() as stack:
        for tap in taps(model, pattern).values():
            stack.enter_context(tap.register_forward_hook(replace))
        yield


def _force_eager() -> AbstractContextManager[object]:
    """Nothing can be compiled before torch._dynamo was imported, which takes seconds."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
