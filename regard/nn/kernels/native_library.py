"""The library of CPU kernels: C that the machine's own compiler turns into a shared library, once, when first needed.

Sources are in native/, a few plain functions of pointers; ctypes calls them and releases the interpreter meanwhile, so
threads compute at the same time. The library is kept in the user's cache (``$XDG_CACHE_HOME/regard``) under a name made
of the sources, the compiler and the processor. Without a compiler (``$CC``, or `cc`), or where it fails, no kernel of
this library is available, `problem` says why, and what runs instead is PyTorch.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from regard.nn.kernels.int8_weight import Int8Weight

SOURCES = Path(__file__).with_name("native")
FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-lm")
ROWS_PER_THREAD = 64
"""The least rows that a thread is given: fewer are done before another one has begun."""

SECONDS = 120
"""The time given to a compiler."""

FUNCTIONS = (
    "regard_linear",
    "regard_decoder_step",
    "regard_packed_attention",
    "regard_top_log_probs",
    "regard_advance_beams",
)


class Linear(ctypes.Structure):
    """A matrix as the library takes it (native/linear.h)."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("step", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("column_factor", ctypes.c_void_p),
        ("n_in", ctypes.c_int64),
        ("n_out", ctypes.c_int64),
    )


class NativeLibrary:
    """The loaded library, or the reason why there is none; threads may ask for it at the same time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_tried = False
        self._loaded: ctypes.CDLL | None = None
        self.problem = ""

    def load(self) -> ctypes.CDLL | None:
        """Return the library, compiled if it has not been; None where that fails."""
        if not self._is_tried:
            with self._lock:
                if not self._is_tried:
                    self._try()
        return self._loaded

    def _try(self) -> None:
        try:
            self._loaded = _open(_build())
        except (OSError, subprocess.SubprocessError) as error:
            lines = [line for line in str(getattr(error, "stderr", "")).splitlines() if "error" in line]
            self.problem = f"CPU kernels were not compiled: {lines[0] if lines else error}"
        self._is_tried = True


LIBRARY = NativeLibrary()


def is_loaded(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the library runs on this device, in this precision."""
    return device.type == "cpu" and dtype == torch.float32 and LIBRARY.load() is not None


def library() -> ctypes.CDLL:
    """Return the library where it is loaded."""
    loaded = LIBRARY.load()
    assert loaded is not None, LIBRARY.problem
    return loaded


def pointer(x: Tensor | None) -> int | None:
    """Return where a tensor's numbers begin."""
    return None if x is None else x.data_ptr()


def _build() -> Path:
    """Return the path of the compiled library; compile it beside, and rename it, if it is missing."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise OSError("no C compiler was found")
    path = _cache_folder() / f"kernels-{_fingerprint(compiler)}.so"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            compiled = Path(folder) / path.name
            sources = sorted(str(source) for source in SOURCES.glob("*.c"))
            command = [compiler, *sources, *FLAGS, "-o", str(compiled)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
            compiled.rename(path)
    return path


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def _fingerprint(compiler: str) -> str:
    """Return a name for what the library is made of and for."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=SECONDS).stdout
    files = sorted(path for path in SOURCES.iterdir() if path.suffix in (".c", ".h"))
    parts = [version, repr((compiler, FLAGS)).encode(), _describe_processor(), *(path.read_bytes() for path in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _describe_processor() -> bytes:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
        return b"\n".join(sorted({line for line in lines if line.startswith((b"flags", b"Features", b"model\t"))}))
    return f"{platform.machine()} {platform.processor()}".encode()


def _open(path: Path) -> ctypes.CDLL:
    opened = ctypes.CDLL(str(path))
    for name in FUNCTIONS:
        getattr(opened, name).restype = None
    for name in ("regard_lanes", "regard_int8_panel"):
        getattr(opened, name).restype = ctypes.c_int64
    return opened


def multiply(matrix: Linear, x: Tensor) -> Tensor:
    """Return ``x @ matrix.T + bias`` for all rows of x, shared among as many threads as torch has.

    A row is the same whichever thread computes it, beside whatever rows.
    """
    x, out = x.contiguous(), x.new_empty(*x.shape[:-1], matrix.n_out)
    n_rows = out.numel() // matrix.n_out
    n_parts = max(min(torch.get_num_threads(), n_rows // ROWS_PER_THREAD), 1)
    bounds = [n_rows * part // n_parts for part in range(n_parts + 1)]
    run = library().regard_linear

    def multiply_rows(start: int, end: int) -> None:
        pointers = (x.data_ptr() + 4 * start * matrix.n_in, out.data_ptr() + 4 * start * matrix.n_out)
        run(ctypes.byref(matrix), *map(ctypes.c_void_p, pointers), ctypes.c_int64(end - start))

    if n_parts == 1:
        multiply_rows(0, n_rows)
    else:
        list(_threads().map(multiply_rows, bounds[:-1], bounds[1:]))
    return out


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that share large products; they hold nothing between calls."""
    return ThreadPoolExecutor(os.cpu_count() or 1, "regard-kernel")


def describe_float32(weight: Tensor, bias: Tensor | None, n_out: int = 0) -> Linear:
    """Return a weight of float32 as the library takes it, or its first outputs alone."""
    return Linear(weight.data_ptr(), None, pointer(bias), None, weight.shape[1], n_out or len(weight))


def describe_int8(weight: Int8Weight, bias: Tensor | None) -> Linear:
    """Return a weight in the layout of native_int8_linear.py as the library takes it."""
    return Linear(
        weight.packed.data_ptr(),
        weight.step.data_ptr(),
        pointer(bias),
        pointer(weight.column_factor),
        *weight.shape[::-1],
    )


def fits_float32(weight: Tensor, *others: Tensor | None) -> bool:
    """Return True if the library multiplies with a weight of float32 as it is."""
    given = [weight, *(each for each in others if each is not None)]
    whole = weight.shape[1] % library().regard_lanes() == 0 and weight.is_contiguous()
    return whole and all(each.dtype == torch.float32 for each in given) and not torch.compiler.is_compiling()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a fork has none of its parent's threads
