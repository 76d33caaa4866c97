"""Devices: the one named by ``--device``, its free memory, and its description."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from pathlib import Path

import torch

from regard.errors import InputError

DEVICES = ("auto", "cpu", "cuda", "cuda:N", "mps")
"""Values of ``--device``; N is the index of a GPU, counted from 0."""

CGROUP_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


def select_device(name: str) -> torch.device:
    """Return the device that ``--device`` names; "auto" takes a GPU if one is available."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if available["cuda"] else "mps" if available["mps"] else "cpu")
    kind, index = _parse_device(name)
    if not available[kind]:
        raise InputError(f"device '{name}' is not available: {_describe_unavailable(kind)}, or pass --device auto")
    return torch.device(kind) if index is None else _select_gpu(index)


def _describe_unavailable(kind: str) -> str:
    """Return why no GPU of a kind is available, and what to do about it."""
    is_built = {"cuda": torch.backends.cuda.is_built, "mps": torch.backends.mps.is_built}[kind]()
    if not is_built:
        return f"this torch is built without {kind.upper()}; install a build that has it"
    if kind == "mps":
        return "torch finds no Apple GPU; macOS may be too old for it: update that"
    return "torch finds no GPU; check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES"


def _parse_device(name: str) -> tuple[str, int | None]:
    """Return the kind of a device and, for a GPU that is named by number, its index."""
    match = re.fullmatch(r"(cpu|mps|cuda)|cuda:(\d+)", name, re.ASCII)
    if match is None:
        raise InputError(f"device '{name}' is unknown; accepted: {', '.join(DEVICES)}")
    return match[1] or "cuda", None if match[2] is None else int(match[2])


def _select_gpu(index: int) -> torch.device:
    """Return a GPU by its index, and make it the current one: kernels and CUDA graphs run on the current GPU."""
    n_gpus = torch.cuda.device_count()
    if index >= n_gpus:
        gpus = "cuda:0" if n_gpus == 1 else f"cuda:0 to cuda:{n_gpus - 1}"
        raise InputError(f"device 'cuda:{index}' does not exist; this machine has {gpus}")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def available_memory(device: torch.device) -> int:
    """Return the bytes of free memory on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def total_memory(device: torch.device) -> int:
    """Return the bytes of all memory of the device; of a CPU, as much as this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [resource.getrlimit(resource.RLIMIT_AS)[0], _cgroup_limit()]
    return min([installed, *(limit for limit in limits if limit > 0)])


def _cgroup_limit() -> int:
    """Return the memory limit of the container; 0 if there is none."""
    with suppress(OSError, ValueError):  # no Linux, an older kernel, or "max"
        return int(CGROUP_MEMORY_LIMIT.read_text())
    return 0


def describe_device(device: torch.device, n_threads: int = 0) -> str:
    """Return the name of a GPU, or the kind of the device and the number of threads; 0 is that of the process."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    n_threads = n_threads or torch.get_num_threads()
    return f"{device.type}, {n_threads} thread{'s' if n_threads > 1 else ''}"
