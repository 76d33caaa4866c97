"""Forked processes that start quickly, for tests that kill them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forks import Forks


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()
