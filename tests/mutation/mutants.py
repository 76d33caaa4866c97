"""Mutate regard at random and run the tests of each mutated file: which changes does no test notice?

    python tests/mutation/mutants.py --number 100 --seed 7          # `make mutants`
    python tests/mutation/mutants.py --number 20 regard/nn          # of these files alone

Each mutant is a copy of the project with one change (mutations.py), tested in a fork of this process, which has
imported torch already. The tests of regard/X/Y.py are tests/X/test_Y.py and those that tested_by.py names. A test that
fails is run again without the change, so that a mutant is not caught by a test that fails anyway; so are tests that
do not end.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest
from mutations import Mutation, draw_mutations
from tested_by import find_tests

PROJECT = Path(__file__).parents[2]
COPIED = ("regard", "tests", "docs", "recipes", "bench", "*.md", "*.toml", "Makefile")
IMPORTED = (
    *("torch", "numpy", "beartype", "jaxtyping", "hypothesis.strategies", "tokenizers", "safetensors.torch", "pyarrow"),
    *("typer", "rich", "sacrebleu", "matplotlib.figure", "triton.language", "torch._dynamo"),
)
"""What takes long to import and is no part of what is tested."""

OPTIONS = (
    *("-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of plugins, which are imported already
)
"""Options of pytest: what is drawn in a test is the same for all mutants."""

TIMEOUT = 300.0
"""Seconds that the tests of a mutant have; most take a few, the slowest about 150 on two busy cores."""

MEMORY = 12 << 30
"""Bytes of memory that the tests of a mutant may fill."""

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
"""The line of pytest that names the test, or the file, that failed."""


@dataclass
class Workspace:
    """A copy of the project in which one mutant at a time is tested, by a forked process."""

    folder: Path
    mutation: Mutation | None = None
    tests: tuple[str, ...] = ()
    process: int = 0
    began: float = 0.0
    _original: bytes = field(default=b"", repr=False)

    @classmethod
    def copy(cls, project: Path, folder: Path) -> Workspace:
        for path in (path for pattern in COPIED for path in project.glob(pattern)):
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, folder / path.name)
        return cls(folder)

    def start(self, mutation: Mutation | None, tests: Sequence[str]) -> None:
        """Begin the tests of a mutant, or of the project as it is."""
        self.mutation, self.tests, self.began = mutation, tuple(tests), time.monotonic()
        self._write(changed=True)
        self.process = os.fork() or become_tests(self.folder, tests)

    def poll(self) -> str | None:
        """Return the outcome of the tests once there is one: "caught", "survived" or "timed out"."""
        process, status = os.waitpid(self.process, os.WNOHANG)
        late = not process and self.seconds > TIMEOUT
        if not process and not late:
            return None
        self._kill_all()
        self._write(changed=False)
        passed = process and os.waitstatus_to_exitcode(status) in (0, 5)  # 5: there are no tests
        return "timed out" if late else "survived" if passed else "caught"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def failed_test(self) -> str:
        """Return the test that failed, or the file that could not be imported; of a crash, all tests."""
        log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        failed = FAILED.findall(log)
        return failed[-1] if failed else " ".join(self.tests)

    def _kill_all(self) -> None:
        """End the process and all that it started."""
        with suppress(ProcessLookupError, ChildProcessError):
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)

    def _write(self, *, changed: bool) -> None:
        """Write the changed or the original file, and remove what Python has compiled of it."""
        if self.mutation is None:
            return
        path = self.folder / self.mutation.path
        if changed:
            self._original = path.read_bytes()
        path.write_bytes(self.mutation.apply(self._original) if changed else self._original)
        for compiled in Path(f"{compiled_folder(self.folder)}{path.parent}").glob(f"{path.stem}.*"):
            compiled.unlink()


def compiled_folder(folder: Path) -> Path:
    """Return where Python keeps what it compiles, the rewritten tests and libraries among it, for the next mutant."""
    return folder / "compiled"


def become_tests(folder: Path, tests: Sequence[str]) -> NoReturn:
    """Become the process that tests the copy."""
    status = 1
    try:
        status = run_tests(folder, tests)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_tests(folder: Path, tests: Sequence[str]) -> int:
    """Run tests of the copy in this process; return the exit status."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor, to in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(to, descriptor)
    os.chdir(folder)
    sys.path[0], sys.pycache_prefix, sys.dont_write_bytecode = str(folder), str(compiled_folder(folder)), False
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": sys.pycache_prefix}
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with TemporaryDirectory(dir=folder) as scratch:
        return int(pytest.main([*OPTIONS, f"--basetemp={scratch}/t", *tests]))


class Campaign:
    """Tests mutants in several workspaces at once."""

    def __init__(self, workspaces: Sequence[Workspace]) -> None:
        self.idle = list(workspaces)
        self.in_use: list[Workspace] = []
        self.confirmed: set[str] = set()

    def run(self, queue: Iterable[tuple[Mutation, tuple[str, ...]]]) -> Iterator[tuple[Mutation, str, float, str]]:
        """Yield each mutant with its outcome, the seconds its tests took and the one that failed, as they end."""
        for mutation, tests in queue:
            while not self.idle:
                yield from self._collect()
            workspace = self.idle.pop()
            workspace.start(mutation, tests)
            self.in_use.append(workspace)
        while self.in_use:
            yield from self._collect()

    def _collect(self) -> Iterator[tuple[Mutation, str, float, str]]:
        time.sleep(0.05)
        for workspace in list(self.in_use):
            if outcome := workspace.poll():
                self.in_use.remove(workspace)
                self.idle.append(workspace)
                mutation, seconds = workspace.mutation, workspace.seconds
                assert mutation is not None
                failed = workspace.failed_test() if outcome == "caught" else ""
                self._confirm(workspace, " ".join(workspace.tests) if outcome == "timed out" else failed)
                yield mutation, outcome, seconds, failed

    def _confirm(self, workspace: Workspace, test: str) -> None:
        """Run tests that failed or did not end once more without a change; end the campaign if that repeats."""
        if not test or test in self.confirmed:
            return
        workspace.start(None, test.split(" ") if "::" not in test else [test])
        while not (outcome := workspace.poll()):
            time.sleep(0.05)
        if outcome == "timed out":
            sys.exit(f"error: {test}: not done after {TIMEOUT:g} s without any change; raise TIMEOUT in mutants.py")
        if outcome != "survived":
            sys.exit(f"error: {test}: fails without any change; mend it first")
        self.confirmed.add(test)


def summarise(outcomes: Counter[str]) -> str:
    """Return the counts, and the percentage of mutants that were noticed."""
    total = outcomes.total()
    noticed = total - outcomes["survived"]
    counts = ", ".join(f"{outcomes[each]} {each}" for each in ("caught", "timed out", "survived"))
    return f"{total} mutants: {counts}; {noticed / max(1, total):.0%} noticed"


def report(mutations: Sequence[Mutation], jobs: int) -> None:
    """Test the mutants and print the outcome of each, then the counts."""
    outcomes: Counter[str] = Counter()
    queue = [(mutation, find_tests(PROJECT, mutation.path)) for mutation in mutations]
    with TemporaryDirectory(prefix="mutants-") as name:
        folders = [Path(name, str(number)) for number in range(jobs)]
        for folder in folders:
            folder.mkdir()
        campaign = Campaign([Workspace.copy(PROJECT, folder) for folder in folders])
        for mutation, outcome, seconds, failed in campaign.run(queue):
            outcomes[outcome] += 1
            counted = f"{outcomes.total():>{len(str(len(mutations)))}}/{len(mutations)}"
            print(
                f"{counted}  {outcome:9}  {seconds:4.0f} s  {describe(mutation)}{failed and f'  ({failed})'}",
                flush=True,
            )
    print(summarise(outcomes))


def describe(mutation: Mutation) -> str:
    return f"{mutation.path}:{mutation.line}: {mutation.describe((PROJECT / mutation.path).read_bytes())}"


def import_libraries() -> None:
    """Import what all forks need; Triton for its interpreter, as tests/conftest.py does."""
    os.environ["TRITON_INTERPRET"] = "1"
    for name in IMPORTED:
        with suppress(ImportError):
            import_module(name)
    del os.environ["TRITON_INTERPRET"]


def python_files(paths: Iterable[Path]) -> list[Path]:
    return [file.resolve() for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[PROJECT / "regard"], help="files or folders to mutate")
    parser.add_argument("--number", type=int, default=100, help="how many mutants (100)")
    parser.add_argument("--seed", type=int, help="draws the same mutants again (drawn at random)")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tested at the same time (1)")
    parser.add_argument("--list", action="store_true", help="print the mutants and test none")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"{options.number} mutants of seed {seed}", flush=True)
    mutations = draw_mutations(PROJECT, python_files(options.paths), options.number, seed)
    if options.list:
        print("\n".join(map(describe, mutations)))
        return
    import_libraries()
    report(mutations, options.jobs)


if __name__ == "__main__":
    main()
