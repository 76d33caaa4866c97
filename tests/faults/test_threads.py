"""Threads that share loaded models: every verb gives, bit for bit, what it gives in one thread."""

from __future__ import annotations

from thread_storm import run


def test_every_verb_in_many_threads_equals_one_thread() -> None:
    counts = run(80, n_threads=6, n_variants=1)
    assert counts.faults == []
    assert counts.cases == 80
