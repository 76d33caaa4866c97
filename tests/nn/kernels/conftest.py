"""Where kernels are tested: in Triton's interpreter on a CPU, at small sizes, and compiled on a GPU where there is one.

tests/conftest.py had the kernels imported for the interpreter; only a test that asks for it here lets them be chosen.
"""

from __future__ import annotations

import pytest
import torch

from regard.nn.kernels import dispatch, triton_support


def skip_without_interpreter() -> None:
    if torch.cuda.is_available():
        pytest.skip("kernels are compiled for the GPU here")
    if triton_support.triton is None:
        pytest.skip("needs triton: make setup installs it on Linux")


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Let Triton's interpreter run the kernels, on a CPU."""
    skip_without_interpreter()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_support, "INTERPRETED", True)
    return torch.device("cpu")


@pytest.fixture(params=["interpreter", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of a test that runs in the interpreter, and again on a GPU."""
    return request.getfixturevalue("interpreter") if request.param == "interpreter" else torch.device("cuda")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that run, one after another."""
    names: list[str] = []

    def watched(kernel: dispatch.Kernel) -> dispatch.Kernel:
        def run(*inputs: object) -> object:
            names.append(kernel.name)
            return kernel.run(*inputs)

        return kernel._replace(run=run)

    kernels = {operation: tuple(map(watched, those)) for operation, those in dispatch.KERNELS.items()}
    monkeypatch.setattr(dispatch, "KERNELS", kernels)
    return names
