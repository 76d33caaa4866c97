"""The table of kernels: what is chosen, how all are switched off, what is in use, and what may be deleted."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_reference import packed
from torch import Tensor
from torch.testing import assert_close

import regard
from regard.generate.beam import Beams
from regard.models.blocks import build_decoder_layer
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.nn import AttentionMask, KeyValue, KVCache, kernels
from regard.nn.kernels import dispatch, plain, plain_beam_update, triton_support
from regard.nn.kernels.int8_weight import quantize_weight
from regard.nn.kernels.workspace import PackedWeight
from regard.nn.loss import IGNORE

ROOM = Path(kernels.__file__).parent
FILES = [file for _, file, _ in dispatch.TABLE]
SHARED = {
    *(
        "__init__",
        "dispatch",
        "int8_packing",
        "int8_weight",
        "native_library",
        "packed_row_blocks",
        "plain",
        "plain_beam_update",
        "tracing",
    ),
    *("triton_support", "workspace"),
}


def inputs(operation: str) -> tuple[Any, ...]:
    """Draw small inputs of an operation, such as a kernel may take."""
    cpu = torch.device("cpu")
    q, k, p = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.rand(2, 3, 5)
    drawn: dict[str, Callable[[], tuple[Any, ...]]] = {
        "packed_self_attention": lambda: (torch.randn(2, 9, 48), packed(2, 9, cpu, causal=True), 2),
        "scaled_dot_product_attention": lambda: (q[None], k[None], k[None], torch.ones(1, 1, 3, 5, dtype=torch.bool)),
        "linear": lambda: (torch.randn(4, 16), torch.randn(32, 16), torch.randn(32)),
        "prepacked_linear": lambda: (torch.randn(12, 16), torch.randn(32, 16), torch.randn(32), PackedWeight()),
        "int8_linear": lambda: (torch.randn(4, 16), quantize_weight(torch.randn(32, 16)), torch.randn(32)),
        "gelu": lambda: (torch.randn(7),),
        "gelu_tanh": lambda: (torch.randn(7),),
        "cross_entropy_with_gradient": lambda: (torch.randn(3, 8), torch.tensor([1, IGNORE, 7]), 0.1, 8, IGNORE),
        "attention_jvp": lambda: (
            torch.randn(3, 4, 16), None, torch.randn(5, 4, 16), q, k, torch.randn(2, 5, 8), p, torch.randn(2, 3, 8)
        ),
        "append_key_values": lambda: (
            torch.zeros(2, 3, 9, 8), torch.zeros(2, 3, 9, 8), q[:, :, None], q[:, :, None], torch.tensor([[4], [8]])
        ),
        "top_log_probs": lambda: (torch.randn(3, 40), 6, 2, torch.tensor([0, 1])),
        "advance_beams": lambda: (
            Beams.start(torch.tensor([3, 3]), 2, 1, 3),
            *plain.top_log_probs(torch.randn(4, 40), 4, 2, torch.tensor([0])), torch.ones(5), 2, 4,
        ),
        "decoder_layers": decoder_inputs,
    }  # fmt: skip
    return drawn[operation]()


def decoder_inputs() -> tuple[Any, ...]:
    """Return a decoder layer, two hypotheses of each of two sentences, and empty caches."""
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": "tiny", "d_model": 32, "n_heads": 2}))
    layer, position = build_decoder_layer(config).eval(), torch.zeros(2, 2, dtype=torch.long)
    source = KVCache.from_kv(KeyValue(torch.randn(2, 2, 5, 16), torch.randn(2, 2, 5, 16)))
    itself = torch.eye(2, dtype=torch.bool).expand(2, 1, 2, 2)
    masks = AttentionMask(position, position, itself), AttentionMask(position, torch.arange(5).expand(2, -1))
    return [layer], torch.randn(2, 2, 32), [source], *masks, [KVCache()]


def copied(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        each.clone()
        if isinstance(each, Tensor)
        else each.select(torch.arange(2))
        if isinstance(each, Beams)
        else [KVCache()]
        if isinstance(each, list) and isinstance(each[0], KVCache) and not each[0].length
        else each
        for each in given
    )


@pytest.mark.parametrize("operation", dispatch.OPERATIONS)
@torch.no_grad()
def test_every_operation_gives_what_plain_pytorch_gives(operation: str) -> None:
    given = inputs(operation)
    run = getattr(dispatch, operation)
    names = {"prepacked_linear": "linear"}
    wanted = getattr(plain_beam_update if operation == "advance_beams" else plain, names.get(operation, operation))
    with kernels.disabled():  # layers call other operations
        same = wanted(*copied(given)[:3]) if operation == "prepacked_linear" else wanted(*copied(given))
    assert_close(run(*copied(given)), same)
    with kernels.disabled():
        assert_close(run(*copied(given)), same, rtol=0, atol=0)


def test_the_table_names_every_kernel_file_and_every_line_an_operation() -> None:
    assert len(set(FILES)) == len(FILES)
    assert {path.stem for path in ROOM.glob("*.py")} == SHARED | set(FILES)
    assert {operation for operation, _, _ in dispatch.TABLE} <= set(dispatch.OPERATIONS)
    for operation, those in dispatch.KERNELS.items():
        order = [file for named, file, _ in dispatch.TABLE if named == operation]
        assert [kernel.name for kernel in those] == [file for file in order if file in {k.name for k in those}]


@torch.no_grad()
def test_a_context_manager_switches_all_of_them_off_and_on_again(used: list[str]) -> None:
    given = inputs("linear")
    if not dispatch.KERNELS["linear"]:
        pytest.skip("no kernel left")
    dispatch.linear(*given)
    assert len(used) == 1
    with kernels.disabled():
        dispatch.linear(*given)
        with contextlib.suppress(KeyError), kernels.disabled():
            dispatch.linear(*given)
            raise KeyError
        dispatch.linear(*given)
    assert len(used) == 1
    dispatch.linear(*given)
    assert len(used) == 2


def test_in_use_names_what_a_device_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernels.in_use("cpu")
    assert list(found) == list(dispatch.OPERATIONS)
    assert all(names.endswith(dispatch.PLAIN) for names in found.values())
    assert found["scaled_dot_product_attention"] == found["gelu"] == "pytorch"
    for operation, those in dispatch.KERNELS.items():
        for kernel in those:
            named = re.findall(r"(\w+) \(", found[operation])
            assert (kernel.name in named) == kernel.available(torch.device("cpu"), torch.float32)
    with kernels.disabled():
        assert set(kernels.in_use("cpu").values()) == {"pytorch"}
    monkeypatch.setattr(triton_support, "INTERPRETED", True)
    half = kernels.in_use("cpu", torch.bfloat16)["packed_self_attention"]
    names = [kernel.name for kernel in dispatch.KERNELS["packed_self_attention"] if "native" not in kernel.name]
    assert re.findall(r"packed_\w+", half) == names


def python(code: str, folder: Path, **environment: str) -> str:
    """Run some code with the regard of a folder."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_an_environment_variable_switches_all_of_them_off() -> None:
    code = "from regard.nn import kernels; print(*set(kernels.in_use('cpu').values()))"
    folder = Path(regard.__file__).parent.parent
    assert python(code, folder, REGARD_KERNELS="off").strip() == "pytorch"


def test_any_kernel_file_can_be_deleted_with_its_line(tmp_path: Path) -> None:
    """Each in turn, in a copy of the package and of the tests that know kernels: the others and the tests go on."""
    source = Path(regard.__file__).parent.parent
    for folder in ("regard", "tests/nn/kernels"):
        shutil.copytree(source / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    script, cuda = Path(__file__).with_name("delete_each.py"), torch.cuda.is_available()
    environment = {**os.environ, "TRITON_INTERPRET": "0" if cuda else "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert run.stdout.splitlines()[-1] == f"deleted in turn: {', '.join(FILES)}"
