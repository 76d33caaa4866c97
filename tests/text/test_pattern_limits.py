"""Regular expressions of a tokenizer.json: those of published tokenizers are accepted, bombs are refused."""

from __future__ import annotations

import pytest

from regard.text.pattern_limits import MAX_CHOICES, check_pattern

PUBLISHED = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "GPT-4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "BLOOM": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "CLIP": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "XLM-R": " {2,}",
    "digits in threes": r"\p{N}{1,3}(?=(?:\p{N}{3})*$)",
    "flags": r"(?i)'s|[[:alpha:]]+|(?<=\d)\s",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_patterns_are_accepted(name: str) -> None:
    check_pattern(PUBLISHED[name])


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a+)+$", "repeats a repetition"),
        (r"(?:[a-z ]+)*\d", "repeats a repetition"),
        ("(a|a|ab)*$", "repeats a repetition"),
        ("([a-z]?){60}[a-z]{60}", "repeats a repetition"),
        ("((a{999}){999}){999}", "repeats a repetition"),
        ("a{100}{100}{100}", "repeats a repetition"),
        ("a?" * 30 + "a" * 30, f"more than {MAX_CHOICES} choices"),
        ("b|" + "(a|a)" * 30 + "b", f"more than {MAX_CHOICES} choices"),
        (r"(?<x>.\g<x>?\g<x>?)+$", "not supported"),
        ("(?x)( a+ #)(\n )+", "not supported"),
        ("(?~a)", "not supported"),
        ("a)", "closes a group that is not open"),
        ("a" * 100_000, "a pattern of 100,000 characters"),
    ],
)
def test_patterns_that_may_explode_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        check_pattern(pattern)
    assert len(str(refused.value)) < 200


def test_choices_are_counted_in_each_alternative() -> None:
    check_pattern("|".join(["a?b+c*(?:d|e|f)"] * 50))
