"""The directions of a translator that is to be trained: from its data, its recipe and the model that it starts from."""

from __future__ import annotations

from collections.abc import Sequence

from regard.config import Table, Tables
from regard.errors import ConfigError
from regard.text.languages import Direction, Directions, language_token, names_languages, parse_direction
from regard.text.multilingual import list_directions
from regard.text.tokenizer import TokenizerPair


def choose_directions(tables: Tables, user_table: Table, default: Direction | None, where: str) -> tuple[str, ...]:
    """Return the directions of a recipe; none where nothing names languages.

    They are those that the user's ``[task]`` table names, or all of the data and of the model to start from.
    """
    start = tables["model"].get("start", "")
    entries = [*tables["data"].get("train", ()), *tables["data"].get("keep", ())]
    requested: Sequence[str] = user_table.get("directions", ())
    inherited: Sequence[str] = tables["task"].get("directions", ()) if start else ()
    if not (requested or inherited or names_languages(entries)):
        return ()
    if start and not inherited:
        problem = f"{where}: the data names languages, but {start} has one direction"
        raise ConfigError(f"{problem}; leave the languages out, or leave out --from")
    if not tables["tokenizer"].get("joint", True):
        raise ConfigError(
            f"{where}: tokenizer.joint = false, but several directions share one vocabulary; leave it out"
        )
    available = [str(direction) for direction in list_directions(entries, default)]
    for each in requested:
        if str(parse_direction(each)) not in available and not start:
            raise ConfigError(f"{where}: task.directions has {each}, but the data has {', '.join(available)}")
    return tuple(requested) or tuple(dict.fromkeys([*inherited, *available]))


def check_language_tokens(directions: Directions, tokenizers: TokenizerPair) -> None:
    """Refuse a vocabulary without the token of a target language."""
    source = tokenizers.source
    missing = [each for each in directions.targets if not source.has_token(language_token(each))]
    if missing:
        tokens = ", ".join(map(language_token, missing))
        raise ConfigError(
            f"this vocabulary has no token {tokens}; a model cannot learn to translate into a language new to it"
        )
