"""Taps: named identity modules at which activations can be recorded or edited (TransformerLens: HookPoint).

The name of a `Tap` is its path in the model (``encoder.0.attention.weights``). `record` collects the activations at the
taps that match a pattern, `edit` replaces them, both only inside a ``with``. Attention computes explicit weights only
while `Tap.active`, so training and serving pay nothing. Compiled modules run eagerly while a tap is active, because
compiled code does not notice new hooks.
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
        """Return True while the activation is being recorded or edited."""
        return bool(self._forward_hooks)


def taps(model: nn.Module, pattern: str = "*", *, required: bool = True) -> dict[str, Tap]:
    """Return the taps of a model whose names match, in the order of the model; `*` matches any text."""
    all_taps = {name: module for name, module in model.named_modules() if isinstance(module, Tap)}
    matching = {name: tap for name, tap in all_taps.items() if fnmatchcase(name, pattern)}
    if required and not matching:
        raise LookupError(f"no tap matches '{pattern}'; this model has: {', '.join(all_taps) or 'none'}")
    return matching


@contextmanager
def record(model: nn.Module, *patterns: str, required: bool = True) -> Iterator[dict[str, Tensor]]:
    """Collect the latest activation at each matching tap, by name; without `required`, a pattern may match nothing."""
    recorded: dict[str, Tensor] = {}

    def recording_hook(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(_tap: nn.Module, _inputs: object, output: Tensor) -> None:
            recorded[name] = output

        return hook

    with _force_eager(), ExitStack() as stack:
        for pattern in patterns:
            for name, tap in taps(model, pattern, required=required).items():
                stack.enter_context(tap.register_forward_hook(recording_hook(name)))
        yield recorded


@contextmanager
def edit(model: nn.Module, pattern: str, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the activation at the matching taps by `change(activation)`, which returns a new tensor."""

    def replace(_tap: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return change(output)

    with _force_eager(), ExitStack() as stack:
        for tap in taps(model, pattern).values():
            stack.enter_context(tap.register_forward_hook(replace))
        yield


def _force_eager() -> AbstractContextManager[object]:
    """Run compiled modules eagerly; a no-op before torch._dynamo, slow to import, could have compiled anything."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
