"""Recipes: strict keys and types, ``--set`` overrides, and a lossless TOML round trip."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import config
from regard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Oven:
    degrees: int
    hours: float = 1.0
    fan: bool = False
    shelf: Literal["top", "middle"] = "middle"
    dishes: tuple[str, ...] = ()
    note: str | None = None

    def __post_init__(self) -> None:
        if self.degrees < 0:
            raise ConfigError(f"oven.degrees = {self.degrees}; expected 0 or more")


SCHEMA = {"oven": Oven}


def checked(**table: Any) -> dict[str, Any]:
    return config.check({"oven": table}, SCHEMA, "r.toml")["oven"]


def fault(**table: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(**table)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_values_of_the_right_type_pass_and_only_integers_and_single_texts_are_converted() -> None:
    assert checked(degrees=180, fan=True, shelf="top", note="hot") == {
        "degrees": 180,
        "fan": True,
        "shelf": "top",
        "note": "hot",
    }
    assert checked(hours=2) == {"hours": 2.0}
    assert isinstance(checked(hours=2)["hours"], float)
    assert checked(dishes=["pie", "tart"]) == {"dishes": ("pie", "tart")}
    assert checked(dishes="pie") == {"dishes": ("pie",)}


def test_messages_name_key_value_and_accepted_type() -> None:
    assert fault(degree=1) == "r.toml: unknown key 'oven.degree'; did you mean 'oven.degrees'?"
    assert fault(colour="red").startswith("r.toml: unknown key 'oven.colour'; known: degrees, hours, fan")
    assert fault(degrees="hot") == "r.toml: oven.degrees = 'hot'; expected a whole number, found a text"
    assert fault(degrees=1.5) == "r.toml: oven.degrees = 1.5; expected a whole number, found a number"
    assert fault(degrees=True) == "r.toml: oven.degrees = True; expected a whole number, found true or false"
    assert fault(hours="1") == "r.toml: oven.hours = '1'; expected a number, found a text"
    assert fault(hours=True) == "r.toml: oven.hours = True; expected a number, found true or false"
    assert fault(fan=1) == "r.toml: oven.fan = 1; expected true or false, found a whole number"
    assert fault(shelf="floor") == "r.toml: oven.shelf = 'floor'; accepted: top, middle"
    assert "expected" in fault(dishes=3)
    assert "oven.dishes = 3; expected a text" in fault(dishes=["pie", 3])
    assert "oven.note = 3" in fault(note=3)


def test_an_unknown_table() -> None:
    with pytest.raises(ConfigError, match=r"^r.toml: unknown table 'ovens'; did you mean 'oven'\?$"):
        config.check({"ovens": {}}, SCHEMA, "r.toml")


def test_keys_without_a_default_can_be_missing() -> None:
    assert config.missing_keys(Oven, {}) == ["degrees"]
    assert config.missing_keys(Oven, {"degrees": 1}) == []
    assert set(config.defaults(Oven)) == {field.name for field in dataclasses.fields(Oven)} - {"degrees"}


def test_dataclass_validates_its_values() -> None:
    assert config.build(Oven, {"degrees": 5, "dishes": ["pie"]}) == Oven(degrees=5, dishes=("pie",))
    with pytest.raises(ConfigError, match="expected 0 or more"):
        config.build(Oven, {"degrees": -1})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("oven.degrees=180", 180),
        (" oven.degrees = 180 ", 180),
        ("oven.degrees=1e-3", 1e-3),
        ("oven.degrees=true", True),
        ('oven.degrees=["a", "b"]', ["a", "b"]),
        ('oven.degrees="5"', "5"),
        ("oven.degrees=runs/en fr", "runs/en fr"),
        ("oven.degrees=a=b", "a=b"),
        ("oven.degrees=", ""),
    ],
)
def test_setting_is_toml_or_plain_text(setting: str, value: object) -> None:
    before = {"oven": {"fan": True}}
    assert config.override(before, [setting]) == {"oven": {"fan": True, "degrees": value}}
    assert before == {"oven": {"fan": True}}


def test_setting_may_add_a_table_and_the_last_one_wins() -> None:
    assert config.override({}, ["a.b=1", "a.b=2"]) == {"a": {"b": 2}}


@pytest.mark.parametrize("setting", ["steps=5", "train.steps", "=5", ".steps=5", "train.=5", ""])
def test_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"expected table.key=value, as in train.steps=1000$"):
        config.override({}, [setting])


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[oven]\nnote = "é"\n', encoding="utf-8")
    assert config.read(path) == {"oven": {"note": "é"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such recipe"),
        (b"[oven\n", "not valid TOML: "),
        (b'[oven]\nnote = "\xff"\n', "cannot be read as a recipe: "),
        (b"steps = 5\n", "'steps' is outside a table; write it under one, as in [train]"),
    ],
)
def test_invalid_recipe_files_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "r.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        config.read(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


SAMPLE_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | SAMPLE_TEXTS


@given(value=SCALARS | st.lists(SCALARS))
def test_dumped_values_are_read_back(value: object) -> None:
    assert tomllib.loads(config.dump({"t": {"k": value}}))["t"]["k"] == value


def test_dataclass_toml_round_trip() -> None:
    oven = Oven(degrees=3, hours=1e-9, dishes=("a", 'b"\\\n'), note="\x07é")
    tables = config.check(tomllib.loads(config.dump(config.to_tables({"oven": oven}))), SCHEMA, "")
    assert config.build(Oven, tables["oven"]) == oven


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "--set oven.hours: not a value: maximum recursion depth exceeded"),
        ("9" * 5000, "--set oven.hours: not a value: Exceeds the limit (4300 digits)"),
        ("9" * 401, "r.toml: oven.hours = a number of about 401 digits; expected less than 1e308"),
        ("0x" + "f" * 9000, "r.toml: oven.hours = a number of about 10837 digits; expected less than 1e308"),
        (
            "{" + "a={" * 90 + "}" * 91,
            "r.toml: oven.hours = {'a': {'a': {'a': {'a': {'a': {'a': {...}}}}}}}; expected a num",
        ),
        ('"\\u0000"', "r.toml: oven.hours = '\\x00'; expected a number, found a text"),
    ],
    ids=["deep", "digits", "float", "hexadecimal", "tables", "NUL"],
)
def test_hostile_settings_are_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config.check(config.override({}, [f"oven.hours={text}"]), SCHEMA, "r.toml")
    assert str(refused.value).startswith(message)
    assert len(str(refused.value)) < 200


def test_hostile_recipes_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f"[oven]\nhours = {DEEP}\n")
    with pytest.raises(ConfigError, match=r"r\.toml: cannot be read as a recipe: maximum recursion depth exceeded"):
        config.read(path)
    for name, problem in (("a\0b.toml", "embedded null byte"), ("x" * 300 + ".toml", "File name too long")):
        with pytest.raises(ConfigError, match=f": cannot be read as a recipe: {problem}$"):
            config.read(tmp_path / name)
    assert fault(dishes=["a\0"]) == "r.toml: oven.dishes = 'a\\x00': holds a NUL character; leave it out"


@dataclass(frozen=True)
class Grill:
    kind: Literal["gas", "coal"] = "gas"
    litres: Annotated[int, config.AppliesIf("grill.kind=gas")] = 11
    sacks: Annotated[int, config.AppliesIf("grill.kind=coal"), config.AppliesIf("oven.fan=False", "oven.hours")] = 2


def test_keys_without_an_effect_are_left_out() -> None:
    schema = {"grill": Grill, "oven": Oven}
    gas, coal = ({"grill": dataclasses.asdict(Grill(kind))} for kind in ("gas", "coal"))
    assert config.applicable_tables(gas, schema) == {"grill": {"kind": "gas", "litres": 11}}
    assert config.applicable_tables(coal, schema) == {"grill": {"kind": "coal"}}
    for oven in ({"fan": False}, {"hours": 0.0}):
        applicable = config.applicable_tables({**coal, "oven": oven}, schema)
        assert applicable == {"grill": {"kind": "coal", "sacks": 2}, "oven": oven}
    without = config.applicable_tables({**coal, "oven": {"fan": True}}, schema)
    assert without["grill"] == {"kind": "coal"}
