"""Where to compute, and how much memory there is."""

from __future__ import annotations

import os

import torch

from regard.errors import InputError

DEVICES = ("auto", "cpu", "cuda", "mps")


def select_device(name: str) -> torch.device:
    """The device of a ``--device`` option; "auto" takes a GPU where there is one."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if there["cuda"] else "mps" if there["mps"] else "cpu")
    if name not in there:
        raise InputError(f"device '{name}' is unknown; accepted: {', '.join(DEVICES)}")
    if not there[name]:
        raise InputError(f"device '{name}' is not there; pass --device auto, or install a torch that supports it")
    return torch.device(name)


def available_memory(device: torch.device) -> int:
    """Bytes of memory that can still be had on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def describe_device(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    n_threads = torch.get_num_threads()
    return f"{device.type}, {n_threads} thread{'s' if n_threads > 1 else ''}"
