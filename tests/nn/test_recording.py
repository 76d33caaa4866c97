"""Work is run every time on a CPU; on a GPU it is recorded and played (of a model: tests/models/test_gpu.py)."""

from __future__ import annotations

import pytest
import torch

from regard.nn import Recording


def test_without_a_gpu_work_is_run_every_time() -> None:
    recording, seen = Recording(), []

    def work() -> torch.Tensor:
        seen.append(1)
        return torch.tensor(len(seen))

    assert [int(recording(work)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.gpu
def test_on_a_gpu_it_is_run_once_recorded_and_played() -> None:
    recording, seen, count = Recording(), [], torch.zeros(1, device="cuda")

    def work() -> torch.Tensor:
        seen.append(1)
        count.add_(1)
        return count * 10

    assert [int(recording(work)) for _ in range(6)] == [10, 20, 30, 40, 50, 60]
    assert len(seen) == 2


@pytest.mark.gpu
def test_what_failed_while_it_was_recorded_is_not_played() -> None:
    recording, seen, count = Recording(), [], torch.zeros(1, device="cuda")

    def work() -> torch.Tensor:
        seen.append(1)
        count.add_(1)
        if len(seen) == 2:
            raise ValueError("no more room")
        return count * 10

    assert int(recording(work)) == 10
    with pytest.raises(ValueError, match="no more room"):
        recording(work)
    assert [int(recording(work)) for _ in range(3)] == [20, 30, 40]
    assert len(seen) == 3
