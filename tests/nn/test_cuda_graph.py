"""CUDA graphs: a CPU runs the function every time, a GPU captures and replays it."""

from __future__ import annotations

import pytest
import torch

from regard.nn import CudaGraphRunner


def test_without_a_gpu_work_is_run_every_time() -> None:
    runner, seen = CudaGraphRunner(), []

    def work() -> torch.Tensor:
        seen.append(1)
        return torch.tensor(len(seen))

    assert [int(runner(work)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.gpu
def test_on_a_gpu_it_is_run_once_captured_and_replayed() -> None:
    runner, seen, count = CudaGraphRunner(), [], torch.zeros(1, device="cuda")

    def work() -> torch.Tensor:
        seen.append(1)
        count.add_(1)
        return count * 10

    assert [int(runner(work)) for _ in range(6)] == [10, 20, 30, 40, 50, 60]
    assert len(seen) == 2


@pytest.mark.gpu
def test_what_failed_while_it_was_captured_is_not_replayed() -> None:
    runner, seen, count = CudaGraphRunner(), [], torch.zeros(1, device="cuda")

    def work() -> torch.Tensor:
        seen.append(1)
        count.add_(1)
        if len(seen) == 2:
            raise ValueError("no more room")
        return count * 10

    assert int(runner(work)) == 10
    with pytest.raises(ValueError, match="no more room"):
        runner(work)
    assert [int(runner(work)) for _ in range(3)] == [20, 30, 40]
    assert len(seen) == 3
