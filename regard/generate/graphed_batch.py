"""A decoding batch of a fixed number of slots, whose step a GPU replays as one CUDA graph.

All its tensors are static: the beams, and the state that the model keeps. The whole step is captured, the search
included, and nothing in it waits for the host. Which sentences are done is copied to the host after each step and read
while the next one runs, so a slot is found free one step late; at its limit a sentence is known to be done.

    GPU     step 7         step 8         step 9  ...
    host        copy done 7    read done 7    copy what sentence 3 has found, load a waiting one into its slot
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.generate.beam import Beams, BeamSearch, BeamSearchConfig, trace_back
from regard.generate.decoding_batch import Finished
from regard.generate.hypothesis import DecodeStep
from regard.nn import CudaGraphRunner

MAX_UNREAD_STEPS = 1
"""Steps whose results the host has not read while it launches the next."""


class StaticDecoderState(Protocol):
    """The decoder state of slots, whose tensors neither move nor grow."""

    def load(self, slots: Int[Tensor, " N"], other: Any) -> None: ...

    def reorder(self, parents: Int[Tensor, "B W"]) -> None: ...


@dataclass
class _Slot:
    """A sentence in its slot: the steps it may still take until it is done at the latest."""

    handle: int
    steps_left: int


class _Unread(NamedTuple):
    """The sentences in the slots at a step, and a copy of what is done after it, on its way to the host."""

    slots: list[_Slot | None]
    done: Bool[Tensor, " B"]
    copied: _Copied


class _Leaving(NamedTuple):
    """Sentences that are done, with their beams on the way to the host."""

    handles: list[int]
    beams: Beams
    copied: _Copied


class _Copied:
    """The copies to the host that are queued so far, until they have arrived."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    @property
    def is_complete(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


class GraphedBatch:
    """A batch of slots for sources of at most `n_source` tokens and results of at most `max_length`.

    `make_state` returns the model's state of the slots, given that of the first sentences that join.
    """

    def __init__(
        self,
        step: DecodeStep,
        make_state: Callable[[Any], StaticDecoderState],
        config: BeamSearchConfig,
        *,
        n_slots: int,
        n_source: int,
        max_length: int,
        device: torch.device,
    ) -> None:
        self._step, self._make_state, self._config, self._device = step, make_state, config, device
        self._n_source, self._max_length = n_source, max_length
        self._beams = Beams.allocate(n_slots, config.beam_width, max_length, device)
        self._search = BeamSearch(config, max_length, device)
        self._state: StaticDecoderState | None = None
        self._runner = CudaGraphRunner()
        self._slots: list[_Slot | None] = [None] * n_slots
        self._unread: deque[_Unread] = deque()
        self._leaving: deque[_Leaving] = deque()
        self._cancelled: set[int] = set()

    @property
    def n_active(self) -> int:
        return sum(slot is not None for slot in self._slots) + sum(len(each.handles) for each in self._leaving)

    @property
    def n_free(self) -> int:
        return sum(slot is None for slot in self._slots)

    def fits(self, source_length: int, max_length: int) -> bool:
        return source_length <= self._n_source and max_length <= self._max_length

    def admit(self, handles: Sequence[int], state: Any, max_lengths: Sequence[int]) -> None:
        """Load sentences into free slots."""
        if self._state is None:
            self._state = self._make_state(state)
        free = [number for number, slot in enumerate(self._slots) if slot is None][: len(handles)]
        slots, limits = self._to_device(free), self._to_device(max_lengths)
        self._state.load(slots, state)
        start_id = self._config.special_tokens.start_id
        started = Beams.start(limits, self._config.beam_width, start_id, self._max_length)
        for field in fields(Beams):
            getattr(self._beams, field.name).index_copy_(0, slots, getattr(started, field.name))
        for number, handle, max_length in zip(free, handles, max_lengths, strict=True):
            self._slots[number] = _Slot(handle, max_length)

    def advance(self) -> None:
        """Launch a step, and read which sentences were done after the one before."""
        if self.n_free < len(self._slots):
            done = self._runner(self._advance_in_place).to("cpu", non_blocking=True)
            self._unread.append(_Unread(list(self._slots), done, _Copied(self._device)))
            for slot in self._slots:
                if slot is not None:
                    slot.steps_left -= 1
            self._release(
                [number for number, slot in enumerate(self._slots) if slot is not None and not slot.steps_left]
            )
        while self._unread and (len(self._unread) > MAX_UNREAD_STEPS or self._unread[0].copied.is_complete):
            self._read(self._unread.popleft())

    def take_finished(self) -> Finished:
        """Return what has arrived; what the host has nothing else to do for is waited for."""
        finished: Finished = []
        is_last = self.n_free == len(self._slots)
        while self._leaving and (is_last or self._leaving[0].copied.is_complete):
            leaving = self._leaving.popleft()
            leaving.copied.wait()
            hypotheses = zip(leaving.handles, trace_back(leaving.beams, self._config), strict=True)
            finished += [each for each in hypotheses if each[0] not in self._cancelled]
            self._cancelled.difference_update(leaving.handles)
        return finished

    def cancel(self, handle: int) -> None:
        for number, slot in enumerate(self._slots):
            if slot is not None and slot.handle == handle:
                self._slots[number] = None
        if any(handle in each.handles for each in self._leaving):
            self._cancelled.add(handle)

    def _advance_in_place(self) -> Bool[Tensor, " B"]:
        assert self._state is not None
        logits = self._step(self._beams.last_token.flatten(), self._state)
        self._state.reorder(self._search.advance(self._beams, logits))
        return self._beams.done

    def _read(self, unread: _Unread) -> None:
        unread.copied.wait()
        is_done = unread.done.tolist()
        pairs = enumerate(zip(unread.slots, self._slots, strict=True))
        self._release([n for n, (then, now) in pairs if is_done[n] and now is not None and then is now])

    def _release(self, numbers: list[int]) -> None:
        """Free slots whose sentences are done; their beams stay as they are until the slot is loaded again."""
        if numbers:
            beams = self._beams.select(self._to_device(numbers)).to("cpu", non_blocking=True)
            handles = [slot.handle for number in numbers if (slot := self._slots[number]) is not None]
            self._leaving.append(_Leaving(handles, beams, _Copied(self._device)))
            for number in numbers:
                self._slots[number] = None

    def _to_device(self, numbers: Sequence[int]) -> Int[Tensor, " N"]:
        """Copy numbers to the device without waiting for it."""
        tensor = torch.tensor(numbers)
        return tensor.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else tensor
