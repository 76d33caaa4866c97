"""The machine and the software versions of a measurement."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from pathlib import Path

import torch

from regard import __version__
from regard.runs.device import describe_device, select_device


def collect_environment(device: str) -> dict[str, str]:
    """Return processor, device, system and versions, in words."""
    return {
        "processor": _processor_name(),
        "cores": str(os.cpu_count()),
        "device": describe_device(select_device(device)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": __version__,
        "date": datetime.now().astimezone().isoformat(" ", "minutes"),
    }


def _processor_name() -> str:
    """Return the name of the processor, or the machine type if unknown."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())
