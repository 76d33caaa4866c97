"""Fuzz of model directories: run directories and Hugging Face directories with hostile files in them.

Each case is a directory of a tiny model that works, changed in one place: sizes at their extremes, values of wrong
types, ids out of range, patterns that never end, rubbish. A verb that opens it must succeed, or print one line of error
and end with status 2, within the limits of isolation.py on time and memory. The long form is

    python tests/faults/campaign.py model_directories --cases 1000
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from fault_counts import FaultCounts
from isolation import Ended, run_isolated
from tiny_directories import write_runs

import regard
from regard.cli import VERBS, main, module_name
from regard.errors import RegardError
from regard.export import export_model

TEXT = "the red cat sits in tokyo"
COMMANDS = {
    "translate": ["translate", TEXT],
    "lm": ["generate", TEXT, "--max-tokens=3"],
    "pretrain": ["fill", "the [MASK] sits"],
    "classify": ["classify", TEXT],
    "tag": ["tag", TEXT],
    "qa": ["answer", "--question=where", f"--context={TEXT}"],
    "embed": ["match", TEXT, "a dog"],
    "vectors": ["match", "cat"],
}
"""A verb that uses the model of each task, and its arguments after the directory."""

NESTED = "[" * 100_000 + "]" * 100_000
HUGE = [10**7, 10**9, 4_000_000_000, 2**32, 2**63, 10**30]
VALUES: list[Any] = [
    *HUGE,
    0,
    -1,
    1,
    2.5,
    float("nan"),
    float("inf"),
    1e308,
    True,
    None,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[1]],
]
PATTERNS = [
    "(a+)+$",
    "(?:[a-z ]+)*\\d",
    "(a|a|ab)*$",
    "((a{999}){999}){999}",
    "([a-z]?){60}[a-z]{60}",
    "(?<x>.\\g<x>?\\g<x>?)+$",
    "a{100}{100}{100}",
    "(",
    "a" * 100_000,
]
COMPONENTS: list[tuple[str, dict[str, Any]]] = [
    ("normalizer", {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
    ("normalizer", {"type": "Strip", "strip_left": True, "strip_right": True}),
    ("pre_tokenizer", {"type": "FixedLength", "length": 5}),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": " "}, "behavior": "Isolated", "invert": False}),
    ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
    ("post_processor", {"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}),
    ("decoder", {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
    ("decoder", {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": True}),
    ("decoder", {"type": "BPEDecoder", "suffix": "</w>"}),
]
"""Components of a tokenizer.json that the tiny models lack."""
RUBBISH = [b"", b"\0" * 100, b"{}", b"[]", b"null", b"\xff\xfe", b"{", NESTED.encode(), b'{"a":' * 3000]

DirectoryChange = Callable[[Path], object]


def change_json(name: str, change: Callable[[Any], object]) -> DirectoryChange:
    """Return a change of the value in a JSON file."""

    def change_file(directory: Path) -> None:
        value = json.loads((directory / name).read_text(encoding="utf-8"))
        change(value)
        (directory / name).write_text(json.dumps(value), encoding="utf-8")

    return change_file


def set_keys(name: str, **values: Any) -> DirectoryChange:
    """Return a change of keys of a JSON file."""
    return change_json(name, lambda value: value.update(values))


def replace_file(name: str, content: bytes) -> DirectoryChange:
    return lambda directory: (directory / name).write_bytes(content)


def change_header(change: Callable[[dict[str, Any]], object]) -> DirectoryChange:
    """Return a change of the header of the weights; without its checksum, so that this is not what is refused."""

    def change_file(directory: Path) -> None:
        path = directory / "model.safetensors"
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        change(header)
        encoded = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + content[8 + length :])

    return change_file


def set_recipe_key(key: str, toml: str) -> DirectoryChange:
    """Return a change of a key of config.toml."""

    def change_file(directory: Path) -> None:
        path = directory / "config.toml"
        text = path.read_text(encoding="utf-8")
        assert re.search(rf"(?m)^{key} = ", text), key
        path.write_text(re.sub(rf"(?m)^{key} = .*$", lambda _: f"{key} = {toml}", text), encoding="utf-8")

    return change_file


def add_tokens(*tokens: tuple[str, Any]) -> DirectoryChange:
    """Return a change of tokenizer.json that adds tokens with these ids."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    entries = [{"id": token_id, "content": content, **flags} for content, token_id in tokens]
    return change_json("tokenizer.json", lambda value: value["added_tokens"].extend(entries))


def set_vocabulary(change: Callable[[dict[str, Any]], object]) -> DirectoryChange:
    return change_json("tokenizer.json", lambda value: change(value["model"]["vocab"]))


def split_by(pattern: str) -> DirectoryChange:
    """Return a change of tokenizer.json: texts are split by a regular expression."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return set_keys("tokenizer.json", pre_tokenizer=split)


def wrap_with(*ids: Any, known: bool = True) -> DirectoryChange:
    """Return a change of tokenizer.json: the post-processor adds a token of these ids."""
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    special = {"SpecialToken": {"id": "x", "type_id": 0}}
    tokens = {"x": {"id": "x", "ids": list(ids), "tokens": ["x"] * len(ids)}} if known else {}
    template = {"single": [special, first], "pair": [special, first, second], "special_tokens": tokens}
    return set_keys("tokenizer.json", post_processor={"type": "TemplateProcessing", **template})


def normalize_with(*normalizers: dict[str, Any]) -> DirectoryChange:
    return set_keys("tokenizer.json", normalizer={"type": "Sequence", "normalizers": list(normalizers)})


def _first_tensor(header: dict[str, Any]) -> dict[str, Any]:
    tensor: dict[str, Any] = header[min(header)]
    return tensor


def _overlap(header: dict[str, Any]) -> None:
    names = sorted(header, key=lambda name: header[name]["data_offsets"])
    header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]


def _remove_tensor(header: dict[str, Any]) -> None:
    last = max(header, key=lambda name: header[name]["data_offsets"])
    del header[last]


def _charsmap(*words: int) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(struct.pack(f"<{len(words)}I", *words)).decode()}


def _use_vocab_txt(content: str, settings: dict[str, Any]) -> DirectoryChange:
    def change_files(directory: Path) -> None:
        (directory / "tokenizer.json").unlink()
        (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        if content:
            (directory / "vocab.txt").write_text(content, encoding="utf-8")

    return change_files


def _replace_by(name: str, make: Callable[[Path], object]) -> DirectoryChange:
    def change_file(directory: Path) -> None:
        (directory / name).unlink()
        make(directory / name)

    return change_file


def _write_terabyte(path: Path) -> None:
    """Write a file with holes whose one tensor is larger than memory."""
    n_bytes = 1 << 40
    header = json.dumps({"x": {"dtype": "F32", "shape": [n_bytes // 4], "data_offsets": [0, n_bytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + n_bytes)


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}

REFUSED: dict[str, tuple[str, DirectoryChange]] = {
    "ten million layers": ("hf/pretrain", set_keys("config.json", num_hidden_layers=10**7)),
    "a thousand wide layers": (
        "hf/pretrain",
        set_keys("config.json", num_hidden_layers=1000, intermediate_size=1 << 20),
    ),
    "many positions": ("hf/lm", set_keys("config.json", n_positions=1 << 20, n_embd=1 << 16)),
    "a large vocabulary": ("hf/pretrain", set_keys("config.json", vocab_size=10**9)),
    "a vocabulary of a float": ("hf/lm", set_keys("config.json", vocab_size=1e9)),
    "a vocabulary of true": ("hf/lm", set_keys("config.json", vocab_size=True)),
    "a large vocabulary of no width": (
        "hf/lm",
        lambda directory: [
            set_keys("config.json", vocab_size=10**9)(directory),
            change_header(
                lambda header: header.update(x={"dtype": "F32", "shape": [10**9, 0], "data_offsets": [0, 0]})
            )(directory),
        ],
    ),
    "a negative width": ("hf/classify", set_keys("config.json", hidden_size=-16)),
    "no heads": ("hf/tag", set_keys("config.json", num_attention_heads=0)),
    "NaN as dropout": ("hf/qa", set_keys("config.json", hidden_dropout_prob=float("nan"))),
    "a list as activation": ("hf/qa", set_keys("config.json", hidden_act=["gelu"])),
    "a list as model type": ("hf/qa", set_keys("config.json", model_type=[])),
    "classes that are no names": ("hf/qa", set_keys("config.json", architectures=[{}])),
    "a huge number as layers": ("hf/translate", set_keys("config.json", encoder_layers=10**400)),
    "a long text as layers": ("hf/translate", set_keys("config.json", encoder_layers="x" * 10**6)),
    "a billion labels": ("hf/classify", set_keys("config.json", num_labels=10**9, id2label=None)),
    "labels with wrong keys": ("hf/classify", set_keys("config.json", id2label={"0": "a", "7": "b"})),
    "labels in a list": ("hf/tag", set_keys("config.json", id2label=["a", "b"])),
    "labels with half a character": ("hf/tag", set_keys("config.json", id2label={"0": "\ud800", "1": "\udfff"})),
    "nested config": ("hf/pretrain", replace_file("config.json", NESTED.encode())),
    "nested value in config": ("hf/lm", replace_file("config.json", f'{{"model_type": {NESTED}}}'.encode())),
    "config of a pipe": ("hf/lm", _replace_by("config.json", os.mkfifo)),
    "config of a directory": ("hf/lm", _replace_by("config.json", Path.mkdir)),
    "config of endless zeros": ("hf/lm", _replace_by("config.json", lambda path: path.symlink_to("/dev/zero"))),
    "a token id of four billion": ("hf/pretrain", set_vocabulary(lambda words: words.update(x=4_000_000_000))),
    "a token id of four billion in a run": (
        "runs/vectors",
        set_vocabulary(lambda words: words.update(x=4_000_000_000)),
    ),
    "a token id beyond 32 bits": ("runs/lm", set_vocabulary(lambda words: words.update(x=2**32))),
    "a negative token id": ("runs/lm", set_vocabulary(lambda words: words.update(x=-1))),
    "a token id of a float": ("runs/lm", set_vocabulary(lambda words: words.update(x=0.5))),
    "a token id twice": ("runs/classify", set_vocabulary(lambda words: words.update(x=7))),
    "no vocabulary": ("runs/classify", set_vocabulary(lambda words: words.clear())),
    "a vocabulary of rubbish": (
        "runs/tag",
        change_json("tokenizer.json", lambda value: value["model"].update(vocab=7)),
    ),
    "no tokenizer model": ("runs/tag", set_keys("tokenizer.json", model=None)),
    "an added token out of range": ("hf/lm", add_tokens(("x", 4_000_000_000))),
    "an added token with an id of another": ("runs/qa", add_tokens(("x", 7))),
    "added tokens of rubbish": ("runs/qa", set_keys("tokenizer.json", added_tokens=[7])),
    "a post-processor beyond the vocabulary": ("hf/pretrain", wrap_with(4_000_000_000)),
    "a post-processor of an unknown token": ("hf/lm", wrap_with(known=False)),
    "a post-processor of a run beyond the vocabulary": ("runs/lm", wrap_with(10**6)),
    "BERT's post-processor beyond the vocabulary": (
        "hf/pretrain",
        set_keys("tokenizer.json", post_processor={"type": "BertProcessing", "sep": ["x", 10**6], "cls": ["y", 9]}),
    ),
    **{f"the pattern {pattern:.30}": ("runs/lm", split_by(pattern)) for pattern in PATTERNS},
    "normalizers that multiply": ("hf/lm", normalize_with(*[REPLACE] * 10)),
    "a character map of rubbish": ("hf/lm", normalize_with(_charsmap(1))),
    "a character map of four gigabytes": ("hf/lm", normalize_with(_charsmap(2**32 - 4, 0, 0))),
    "merges of missing tokens": (
        "runs/lm",
        change_json("tokenizer.json", lambda value: value["model"].update(merges=[["a", "zzz"]])),
    ),
    "pieces of no length": ("runs/lm", set_keys("tokenizer.json", pre_tokenizer={"type": "FixedLength", "length": 0})),
    "a nested tokenizer": ("runs/lm", replace_file("tokenizer.json", NESTED.encode())),
    "a tokenizer of rubbish": ("hf/translate", replace_file("tokenizer.json", b"\xff\xfe{}")),
    "a vocabulary file with wrong settings": ("hf/pretrain", _use_vocab_txt("", {"do_lower_case": "x"})),
    "an empty vocabulary file": ("hf/pretrain", _use_vocab_txt("\n", {})),
    "weights of a pipe": ("hf/lm", _replace_by("model.safetensors", os.mkfifo)),
    "weights of a terabyte": ("hf/lm", _replace_by("model.safetensors", _write_terabyte)),
    "weights of a run of a pipe": ("runs/lm", _replace_by("model.safetensors", os.mkfifo)),
    "weights of a run of a terabyte": ("runs/lm", _replace_by("model.safetensors", _write_terabyte)),
    "a header of 2^60 bytes": ("hf/lm", replace_file("model.safetensors", struct.pack("<Q", 1 << 60) + b"{}")),
    "a header of rubbish": ("runs/lm", replace_file("model.safetensors", struct.pack("<Q", 8) + b"\xff" * 99)),
    "weights of nothing": ("runs/lm", replace_file("model.safetensors", b"")),
    "overlapping tensors": ("runs/lm", change_header(_overlap)),
    "a missing tensor": ("runs/lm", change_header(_remove_tensor)),
    "weights of whole numbers": ("runs/lm", change_header(lambda header: _first_tensor(header).update(dtype="I32"))),
    "weights of no type": ("runs/lm", change_header(lambda header: _first_tensor(header).update(dtype="X9"))),
    "a negative shape": ("hf/lm", change_header(lambda header: _first_tensor(header).update(shape=[-1, 4]))),
    "a shape that overflows": ("hf/lm", change_header(lambda header: _first_tensor(header).update(shape=[2**63] * 2))),
    "many positions of a run": (
        "runs/lm",
        lambda directory: [
            set_recipe_key("n_positions", "1048576")(directory),
            set_recipe_key("d_model", "65536")(directory),
        ],
    ),
    "layers of a run": ("runs/pretrain", set_recipe_key("n_layers", "1000")),
    "wide layers of a run": ("runs/pretrain", set_recipe_key("d_ff", "1048576")),
    "nested labels of a run": ("runs/classify", replace_file("labels.json", NESTED.encode())),
    "a scale out of range": ("runs/classify", set_keys("labels.json", mean=10**400)),
    "labels of a run with half a character": ("runs/tag", set_keys("labels.json", labels=["\ud800", "\udfff"])),
    "config of a run of a directory": ("runs/lm", _replace_by("config.toml", Path.mkdir)),
    "config of a run of a pipe": ("runs/lm", _replace_by("config.toml", os.mkfifo)),
}
"""Directories that must be refused, each with the one it is made from."""


class Case(NamedTuple):
    """A directory to make, and what to do with it."""

    name: str
    base: str
    change: DirectoryChange
    verb: str = ""

    def call(self, directory: Path) -> None:
        """Open the directory by the verb of its task, or by another, or from Python."""
        if self.verb == "load":
            load(directory)
        else:
            verb, *arguments = COMMANDS[self.base.split("/")[1]]
            device = [] if self.verb in ("info", "export", "import") else ["--device=cpu"]
            out = [f"--out={directory}.out"] if self.verb in ("export", "import") else []
            main([self.verb or verb, str(directory), *out, *([] if self.verb else arguments), *device])


def load(directory: Path) -> None:
    """Open a directory from Python; end as a command does that is refused."""
    try:
        regard.load(directory, device="cpu")
    except RegardError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


class Fuzzer:
    """Makes hostile directories in a folder, from one of each kind."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.random = folder, random.Random(seed)
        runs = write_runs(folder / "runs")
        for task in set(runs) - {"vectors"}:
            export_model(runs[task], folder / "hf" / task, "hf")
        for run in runs.values():
            _remove_checksums(run)
        for verb in VERBS:  # what is imported here, no child imports again
            import_module(f"regard.cli.{module_name(verb)}")
        self.bases = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))

    def run(self, case: Case) -> Ended:
        """Make the directory of a case, open it in a process of its own, and remove it."""
        directory = self.folder / "case"
        shutil.copytree(self.folder / case.base, directory)
        case.change(directory)
        try:
            return run_isolated(partial(case.call, directory))
        finally:
            shutil.rmtree(directory)
            shutil.rmtree(f"{directory}.out", ignore_errors=True)

    def cases(self) -> Iterator[Case]:
        """Yield cases for ever."""
        while True:
            base = self.random.choice(self.bases)
            name = self.random.choice(sorted(path.name for path in (self.folder / base).iterdir() if path.is_file()))
            what, change = self._draw_change(name)
            verbs = ["", "", "load", "info", "import" if base.startswith("hf") else "export"]
            verb = self.random.choice(verbs if base != "runs/vectors" else verbs[:4])
            yield Case(f"{base}/{name} {what} {verb}", base, change, verb)

    def _draw_change(self, name: str) -> tuple[str, DirectoryChange]:
        rubbish = self.random.choice(RUBBISH)
        if self.random.random() < 0.15:
            return f"= {rubbish[:20]!r}", replace_file(name, rubbish)
        seed = self.random.getrandbits(32)
        changes = {".json": _change_any_value, ".toml": _change_any_key, ".safetensors": _change_any_tensor}
        change = changes.get(Path(name).suffix, _change_any_bytes)
        if name == "tokenizer.json" and self.random.random() < 0.5:
            change = _change_any_component
        return f"{change.__name__} {seed}", lambda directory: change(directory / name, random.Random(seed))


def _remove_checksums(run: Path) -> None:
    path = run / "config.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text("".join(line for line in text.splitlines(keepends=True) if line[0] != "#"), encoding="utf-8")


def _change_any_value(path: Path, chance: random.Random) -> None:
    """Change a value of a JSON file, wherever it is, or remove it."""
    value = json.loads(path.read_text(encoding="utf-8"))
    _change_inside(value, chance)
    path.write_text(json.dumps(value), encoding="utf-8")


def _change_any_component(path: Path, chance: random.Random) -> None:
    """Replace a component of tokenizer.json by another, with one value changed."""
    value = json.loads(path.read_text(encoding="utf-8"))
    name, component = deepcopy(chance.choice(COMPONENTS))
    _change_inside(component, chance)
    path.write_text(json.dumps({**value, name: component}), encoding="utf-8")


def _change_inside(value: Any, chance: random.Random) -> None:
    containers = [value]
    while True:  # go down, more often than not
        inside = containers[-1]
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not keys:
            break
        key = chance.choice(keys)
        if not isinstance(inside[key], dict | list) or chance.random() < 0.2:
            break
        containers.append(inside[key])
    if keys and chance.random() < 0.2:
        del inside[key]
    elif isinstance(inside, dict):
        inside[key if keys and chance.random() < 0.8 else "x"] = chance.choice([*VALUES, *PATTERNS[:-1]])
    else:
        inside.append(chance.choice(VALUES))


def _change_any_key(path: Path, chance: random.Random) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    number = chance.choice([i for i, line in enumerate(lines) if " = " in line])
    values = ["0", "-1", "2.5", "nan", "inf", "true", '""', '"x"', "[]", "{}", "65536", "1000000", "9" * 30, "1e400"]
    lines[number] = f"{lines[number].partition(' = ')[0]} = {chance.choice(values)}"
    path.write_text("\n".join(lines), encoding="utf-8")


def _change_any_tensor(path: Path, chance: random.Random) -> None:
    values = {
        "dtype": ["I64", "BOOL", "F64", "F8_E4M3", "F4", "C64", "U8", "", None],
        "shape": [[], [0], [-1], [2**40, 2**40], [10**9], [[1]], None, [1.5]],
        "data_offsets": [[0, 2**60], [4, 0], [-1, 4], [], None, [0, 0]],
    }
    key = chance.choice(sorted(values))

    def change(header: dict[str, Any]) -> None:
        header[chance.choice(sorted(header))][key] = chance.choice(values[key])

    change_header(change)(path.parent)


def _change_any_bytes(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 9)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)


def run(n_cases: int, seed: int) -> FaultCounts:
    """Run the named cases and then random ones, so many in all, and count how they ended."""
    counts = FaultCounts("model_directories")
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder), seed)
        named = (Case(name, *arguments) for name, arguments in REFUSED.items())
        for case in islice(chain(named, fuzzer.cases()), n_cases):
            counts.add(case.name, fuzzer.run(case))
    return counts
