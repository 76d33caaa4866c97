"""Taps: named identity modules at which activations can be recorded or edited (TransformerLens: HookPoint).

The name of a `Tap` is its path in the model (``encoder.0.attention.weights``). `record` collects the activations at the
taps that match a pattern, `edit` replaces them, both only inside a ``with``. Attention computes explicit weights only
while one of its taps is active, so training and serving pay nothing.

Hooks are stored in a context variable and not in the model, so they belong to the caller: threads and asyncio tasks
that share a model neither record nor edit each other's activations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.kernels.tracing import constant_in_graphs

Hook = Callable[[Tensor], Tensor]
"""A function of the activation at a tap that returns what flows on."""


class Tap(nn.Module):
    """An identity with a name."""

    def forward(self, x: Tensor) -> Tensor:
        if has_hooks():
            for hooks in _active_hooks.get():
                if (hook := hooks.get(self)) is not None:
                    x = hook(x)
        return x

    @property
    def active(self) -> bool:
        """Return True while the caller records or edits the activation."""
        return any_active(self)


_active_hooks: ContextVar[tuple[dict[Tap, Hook], ...]] = ContextVar("active_hooks", default=())
"""The hooks of each open `record` or `edit` of the caller, the outermost first."""


@constant_in_graphs
def has_hooks() -> bool:
    """Return whether the caller has any hooks; a constant in compiled graphs, where a ContextVar cannot be read."""
    return bool(_active_hooks.get())


def any_active(*taps: Tap) -> bool:
    """Return True while the caller records or edits the activation at one of these taps."""
    return has_hooks() and any(not hooks.keys().isdisjoint(taps) for hooks in _active_hooks.get())


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

    def store(name: str, x: Tensor) -> Tensor:
        recorded[name] = x
        return x

    matching = {name: tap for pattern in patterns for name, tap in taps(model, pattern, required=required).items()}
    with hook_taps({tap: partial(store, name) for name, tap in matching.items()}):
        yield recorded


@contextmanager
def edit(model: nn.Module, pattern: str, change: Hook) -> Iterator[None]:
    """Replace the activation at the matching taps by `change(activation)`, which returns a new tensor."""
    with hook_taps(dict.fromkeys(taps(model, pattern).values(), change)):
        yield


@contextmanager
def hook_taps(hooks: Mapping[Tap, Hook]) -> Iterator[None]:
    """Apply hooks after those that the caller already has."""
    own = dict(hooks)
    _active_hooks.set((*_active_hooks.get(), own))
    try:
        with _eager_stance.force():
            yield
    finally:
        own.clear()  # ends them also where a generator is closed in another context than it was opened in
        _active_hooks.set(tuple(filter(None, _active_hooks.get())))


@contextmanager
def mute_taps(muted: Collection[Tap]) -> Iterator[None]:
    """Suspend all hooks; these taps still count as active, so the same code paths run."""
    token = _active_hooks.set((dict.fromkeys(muted, identity),))
    try:
        yield
    finally:
        _active_hooks.reset(token)


@contextmanager
def watch_edits(watched: Collection[Tap]) -> Iterator[set[Tap]]:
    """Collect the taps whose output is not their input."""
    inputs: dict[Tap, Tensor] = {}
    edited: set[Tap] = set()

    def store(tap: Tap, x: Tensor) -> Tensor:
        inputs[tap] = x
        return x

    def compare(tap: Tap, x: Tensor) -> Tensor:
        if x is not inputs[tap]:
            edited.add(tap)
        return x

    first: dict[Tap, Hook] = {tap: partial(store, tap) for tap in watched}
    last: dict[Tap, Hook] = {tap: partial(compare, tap) for tap in watched}
    token = _active_hooks.set((first, *_active_hooks.get(), last))
    try:
        yield edited
    finally:
        _active_hooks.reset(token)


def identity(x: Tensor) -> Tensor:
    """Return the activation: a hook that only makes its tap active."""
    return x


class _EagerStance:
    """Compiled modules run eagerly while anyone records or edits, because compiled code does not notice hooks.

    torch has one stance for the whole process, so the first caller sets it and the last one restores it.
    """

    def __init__(self) -> None:
        self._lock, self._n_callers = Lock(), 0
        self._stance: Any = None

    @contextmanager
    def force(self) -> Iterator[None]:
        if "torch._dynamo" not in sys.modules:  # slow to import, and nothing is compiled without it
            yield
            return
        with self._lock:
            if self._n_callers == 0:
                self._stance = torch.compiler.set_stance("force_eager")
            self._n_callers += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_callers -= 1
                if self._n_callers == 0:
                    self._stance.__exit__(None, None, None)


_eager_stance = _EagerStance()
