"""Work that is recorded knows it; on a CPU it is run every time."""

from __future__ import annotations

import pytest
import torch

from regard.nn import Recording
from regard.nn.recording import recorded


def test_work_is_run_and_knows_that_it_is_to_be_recorded() -> None:
    seen = []

    def work() -> torch.Tensor:
        seen.append(recorded())
        return torch.tensor(len(seen))

    recording = Recording()
    assert [int(recording(work)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert seen == [True] * 6
    assert not recorded()


def test_what_comes_after_work_that_failed_is_not_recorded() -> None:
    with pytest.raises(ZeroDivisionError):
        Recording()(lambda: torch.tensor(1 // 0))
    assert not recorded()
