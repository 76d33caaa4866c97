"""On a CPU work is run every time; tests/models/test_gpu.py plays it."""

from __future__ import annotations

import torch

from regard.nn import Recording


def test_without_a_gpu_work_is_run_every_time() -> None:
    recording, seen = Recording(), []

    def work() -> torch.Tensor:
        seen.append(1)
        return torch.tensor(len(seen))

    assert [int(recording(work)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
