"""Tests of README and docs: every block runs, in the order of its page, as does every example of the commands' help.

Blocks run on a small corpus, under the file names they use, in a shell that makes every training short. Links, pictures
and the files that the glossary names must exist.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import fields
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from shell import Shell

pytest.importorskip("babel")

from regard.cli import VERBS, module_name
from regard.data.corpus import DataConfig
from regard.demo import cldr_corpus as cldr
from regard.look.views.registry import VIEWS
from regard.models.config import TransformerSeq2SeqConfig
from regard.runs.recipe import TrainConfig
from regard.tasks.translate import TranslateConfig
from regard.text.tokenizer_training import TokenizerConfig

ROOT = Path(__file__).parent.parent
PAGES = ["help", "README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]

REPLACED = {
    "make demo": ("installs, and trains for minutes", "regard demo --pairs 1000 --steps 3"),
    "make test": ("runs this very test", ":"),
    "make setup": ("installs", ":"),
    "pip install .": ("installs", ":"),
    "tail -f chat.en": ("never ends", "cat chat.en"),
}
"""The only commands that are not run: the reason, and the command that runs instead (``:`` does nothing)."""

PRECEDING = {"docs/walkthrough.md": "regard train translate train.en train.fr --out runs/x"}
"""A command that a page gives in its text before the first block."""

PREREQUISITES = {
    "docs/findings-encoders.md": """
regard train pretrain books.txt --out runs/tiny
regard export runs/tiny --to hf --out MINILM
"""
}
"""Commands that make a model which a page takes as given."""

SPLITS = ("train", "val", "test_2016_flickr")

SENTENCE = "Mr President, I would like to thank the rapporteur for his excellent work."
"""The sentence that a page inspects; frequent in training, so that it has few subwords, as with a real vocabulary."""


ROYAL = "a king is a man and a queen is a woman in Paris, France, or Berlin, Germany, in year"
"""Words whose vectors the pages compare."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and text of every fenced block of a page; for the help, the indented lines of each verb."""
    if page == "help":
        helps = [import_module(f"regard.cli.{module_name(verb)}").__doc__ or "" for verb in VERBS]
        return [("sh", "\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE))) for text in helps]
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def runnable(block: str) -> str:
    """Return the block with the commands of `REPLACED` replaced."""
    for command, (_, replacement) in REPLACED.items():
        block = re.sub(rf"^{re.escape(command)}(?=\s)", replacement, block, flags=re.MULTILINE)
    return block


def with_attribute_checks(block: str) -> str:
    """Return a Python block that also asserts that the attributes in its comments (``# .text .score``) exist."""

    def check(line: re.Match[str]) -> str:
        names = re.findall(r"(?<!\S)\.([a-z_]+)", line[3])
        return f"{line[0]}\nfor name in {names}:\n    assert hasattr({line[1] or line[2]}, name), name"

    return re.sub(r"^(?:(\w+) = .*|(\w.*)\.\w+)  # (\..*)$", check, block, flags=re.MULTILINE)


def lines(texts: Iterable[str]) -> str:
    """Join texts to the content of a file, one a line."""
    return "".join(f"{text}\n" for text in texts)


def conllu(pair: cldr.Pair) -> str:
    """Write a sentence in CoNLL-U with its running text, and the tags NUM and X."""
    tagged = ((word, "NUM" if word[0].isdigit() else "X") for word in pair.source.split())
    rows = ("\t".join([str(n), word, "_", tag, *"______"]) for n, (word, tag) in enumerate(tagged, 1))
    return lines([f"# text = {' '.join(pair.source.split())}", *rows])


def conll(pair: cldr.Pair) -> str:
    """Write a sentence in CoNLL, where capitalised words are entities."""
    return lines(f"{word} {'B-CAP' if word[0].isupper() else 'O'}" for word in pair.source.split())


def article(pairs: Sequence[cldr.Pair]) -> dict[str, list[dict[str, object]]]:
    """Return an article of SQuAD that asks for the last word of each sentence."""
    last = [(pair.source, pair.source.split()[-1]) for pair in pairs]
    answers = [[{"text": word, "answer_start": len(text.rstrip()) - len(word)}] for text, word in last]
    return {
        "paragraphs": [
            {"context": text, "qas": [{"id": str(i), "question": "What comes last?", "answers": answers[i]}]}
            for i, (text, _) in enumerate(last)
        ]
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with the files that the pages name."""
    pytest.importorskip("matplotlib")
    train, test = cldr.generate_corpus(400, 10)
    for name in ("multi30k", "tatoeba", "europarl"):
        (tmp_path / name).mkdir()
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    for name in ("train", "test", "dev", "chat", "news", *(f"multi30k/{part}" for part in SPLITS)):
        pairs = train if name.endswith("train") else test
        for side, column in {"en": 0, "fr": 1, "de": 1}.items():
            (tmp_path / f"{name}.{side}").write_text(lines(pair[column] for pair in pairs), encoding="utf-8")
    tables = {"corpus.tsv": train, "europarl.tsv": test}
    tables |= {"europarl/train.en-de-fr.tsv": train + [cldr.Pair(SENTENCE, SENTENCE)] * 200}
    tables |= {"europarl/dev.en-de-fr.tsv": test}
    for name, pairs in tables.items():
        (tmp_path / name).write_text(lines(f"{pair.source}\tx\t{pair.target}" for pair in pairs), encoding="utf-8")
    two_columns = lines(f"{pair.source}\t{pair.target}" for pair in train)
    for name in ("tatoeba/train.en-fr.tsv", "tatoeba.tsv", "mine.tsv"):
        (tmp_path / name).write_text(two_columns, encoding="utf-8")
    (tmp_path / "wikipedia_en").mkdir()
    plain = "\n\n".join("\n".join(pair.source for pair in train[start : start + 8]) for start in range(0, 400, 8))
    plain += "".join(f"\n\n{ROYAL} {number}" for number in range(20))
    for name in ("books.txt", "wikipedia_en/train.txt"):
        (tmp_path / name).write_text(plain, encoding="utf-8")
    (tmp_path / "wikipedia_en/valid.txt").write_text("\n\n".join(plain.split("\n\n")[:6]), encoding="utf-8")
    labelled = [f"{pair.source}\t{'long' if len(pair.source) > 20 else 'short'}" for pair in train]
    (tmp_path / "SST-2").mkdir()
    tables_of_classes = {"reviews.tsv": labelled, "test.tsv": labelled[:20]}
    tables_of_classes |= {"SST-2/train.tsv": labelled, "SST-2/dev.tsv": labelled[:20]}
    for name, part in tables_of_classes.items():
        (tmp_path / name).write_text(lines(["text\tlabel", *part]), encoding="utf-8")
    for name, pairs in (("train", train), ("dev", test)):
        (tmp_path / f"{name}.conllu").write_text("\n".join(map(conllu, pairs)), encoding="utf-8")
        (tmp_path / f"{name}.conll").write_text("\n".join(map(conll, pairs)), encoding="utf-8")
    (tmp_path / "squad").mkdir()
    for name, pairs in (("squad.json", train), ("squad/train.json", train), ("squad/dev.json", test)):
        (tmp_path / name).write_text(json.dumps({"data": [article(pairs)]}), encoding="utf-8")
    asked = [{"question": "When?", "context": pair.source} for pair in test]
    (tmp_path / "questions.jsonl").write_text(lines(map(json.dumps, asked)), encoding="utf-8")
    followed = lines(f"{pair.source}\t{later.source}" for pair, later in pairwise(test))
    (tmp_path / "pairs.tsv").write_text(followed, encoding="utf-8")
    paraphrases = lines(f"{pair.source}\t{pair.source.upper()}" for pair in train)
    (tmp_path / "paraphrases.tsv").write_text(paraphrases, encoding="utf-8")
    scored = (f"{a.source}\t{b.source}\t{n % 6}" for n, (a, b) in enumerate(pairwise(train[:40])))
    (tmp_path / "sts.tsv").write_text(lines(["sentence1\tsentence2\tscore", *scored]), encoding="utf-8")
    timed = "\n".join(lines(f"{word}\t{200 + 20 * len(word)}" for word in pair.source.split()) for pair in train)
    (tmp_path / "reading-times.conll").write_text(timed, encoding="utf-8")
    (tmp_path / "more.jsonl").write_text(lines(json.dumps(pair._asdict()) for pair in train), encoding="utf-8")
    (tmp_path / "news.en.gz").write_bytes(gzip.compress((tmp_path / "news.en").read_bytes()))
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_every_block_runs(page: str, folder: Path, shell: Shell) -> None:
    preceding = PRECEDING.get(page, "")
    assert not preceding or preceding in (ROOT / page).read_text(encoding="utf-8")
    for language, block in [("sh", PREREQUISITES.get(page, "")), ("sh", preceding), *blocks(page)]:
        assert language in ("sh", "python"), f"{page}: a block of '{language}'; this test runs sh and python"
        if language == "python":
            (folder / "block.py").write_text(with_attribute_checks(block), encoding="utf-8")
        result = shell("python block.py" if language == "python" else runnable(block), folder)
        assert result.returncode == 0, f"{page}\n\n{block}\n{result.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "help"])
def test_links_and_pictures_exist(page: str) -> None:
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def outputs(page: str) -> set[str]:
    """Return the files that the blocks of a page write."""
    text = "\n".join(block for _, block in blocks(page))
    return set(re.findall(r"""(?:--out | > |\.save\(")([\w./-]+)""", text))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_ignores_what_the_readme_writes(tmp_path: Path) -> None:
    written = {"runs/translate-1", "compare/report.html"} | outputs("README.md")
    written |= {name for name in outputs("help") if name.endswith((".html", ".png", ".npy", ".parquet"))}
    assert written >= {"look.html", "out.fr", "runs/en-fr", "map.png"}
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    checked = subprocess.run(
        ["git", "-C", tmp_path, "check-ignore", *written], capture_output=True, text=True, check=False
    )
    assert written - set(checked.stdout.splitlines()) == set()


def test_glossary_names_existing_files_and_identifiers() -> None:
    """The last column of the glossary holds paths, and identifiers that occur in these files."""
    for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines():
        codes = re.findall(r"`([^`]+)`", line.rsplit(" | ", 1)[-1]) if line.startswith("|") else []
        paths = [ROOT / code for code in codes if "/" in code]
        assert [str(path) for path in paths if not path.exists()] == []
        sources = "".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
        identifiers = [code for code in codes if code.isidentifier()]
        assert [name for name in identifiers if name not in sources] == [], line


def test_attributes_in_comments_are_checked() -> None:
    checked = with_attribute_checks("x = 1  # .real (a number) .imag\nx.real  # .nothing\nx.save()  # .png\n")
    assert "['real', 'imag']" in checked
    with pytest.raises(AssertionError, match="nothing"):
        exec(checked.replace("x.save()", ""))


def first_column(page: str, header: str) -> list[str]:
    """Return the names in the first column of the table with this header."""
    text = (ROOT / page).read_text(encoding="utf-8")
    table = text.partition(f"{header}\n")[2].partition("\n\n")[0]
    return [name for line in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])]


@pytest.mark.parametrize("header", ["| view | question | what it shows |", "| view | kind | name and axes |"])
def test_every_view_has_a_row(header: str) -> None:
    assert sorted(first_column("docs/look.md", header)) == sorted(VIEWS)


RECIPE_TABLES = {
    "task": (TranslateConfig, {"start", "first"}),
    "data": (DataConfig, set()),
    "tokenizer": (TokenizerConfig, {"lowercase"}),
    "model": (
        TransformerSeq2SeqConfig,
        {"start", "spread", "first_position", "norm_eps", "embedding", "output_bias"},
    ),
    "train": (TrainConfig, set()),
}
"""The tables of a translation recipe, and the keys that are set by regard, or only for a model from elsewhere."""


@pytest.mark.parametrize("table", RECIPE_TABLES)
def test_every_key_of_a_recipe_is_in_its_row(table: str) -> None:
    config_class, internal = RECIPE_TABLES[table]
    row = re.search(rf"^\| `\[{table}\]` \| (.*) \|$", (ROOT / "docs/translate.md").read_text("utf-8"), re.MULTILINE)
    assert row, f"docs/translate.md: no row for [{table}]"
    listed = set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)(?=[,; ]|$)", "", row[1])))
    keys = {field.name for field in fields(config_class)}
    assert keys - listed - internal == set(), f"add these keys of [{table}] to its row in docs/translate.md"
    assert listed - keys == set(), f"docs/translate.md: [{table}] has no such keys"
    assert internal <= keys - listed, "internal keys that are documented, or do not exist"


def test_walkthrough_names_existing_files() -> None:
    names = re.findall(r"`([\w/]+(?:\.py|/))`", (ROOT / "docs/walkthrough.md").read_text(encoding="utf-8"))
    assert [name for name in names if not any((folder / name).exists() for folder in (ROOT, ROOT / "regard"))] == []


@pytest.mark.parametrize(
    ("heading", "most"), [("Training, from the command line to the loss", 25), ("Translating", 12)]
)
def test_walkthrough_paths_are_short(heading: str, most: int) -> None:
    """Every file of a path is an item of its list, counted from 1; what is beside the path follows."""
    section = (ROOT / "docs/walkthrough.md").read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    path = section.partition("Beside the path:")[0]
    items = re.findall(r"^(\d+)\. `([\w/]+\.py)`", path, re.MULTILINE)
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    assert f" {len(items)} files" in path
    assert 10 < len(items) <= most
    assert {name for _, name in items} == set(re.findall(r"`([\w/]+\.py)`", path))


def test_replaced_commands_occur_in_the_docs() -> None:
    lines = [line for page in PAGES for _, block in blocks(page) for line in block.splitlines()]
    assert [command for command in REPLACED if not any(line.startswith(command) for line in lines)] == []
