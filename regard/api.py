"""regard from Python: `load` a model and use it, `train` one from a recipe.

model = regard.load("runs/en-fr")
best = model.translate("I am good")[0]          # .text .score .tokens .token_scores .alignment
run = regard.train("recipe.toml", out="runs/x")
for event in run: print(event.kind, event.step, event.values)
regard.load(run.path)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, overload

import torch

from regard import config
from regard.data.buckets import windows
from regard.errors import DataError, InputError, did_you_mean
from regard.generate import Search
from regard.look.identify import SENTENCES, Identification, check_maps, identify
from regard.look.probes import MAPS
from regard.look.seen import Seen
from regard.look.sentences import draw, usable
from regard.look.subject import KINDS, Side, Subject
from regard.look.survey import Survey, survey
from regard.metrics import perplexity, translation_score
from regard.models.seq2seq import Seq2Seq
from regard.progress import say, track, warn
from regard.tasks.translate import Forced, Translate, Translation, pairs_to_rows
from regard.text.files import kind as file_kind
from regard.text.files import lines
from regard.text.pairs import paths_of, read_pairs
from regard.text.tokenizer import EOS, SOS, Tokenizer
from regard.train.device import device_named
from regard.train.loop import Event, Training
from regard.train.prepare import Prepared, prepare
from regard.train.run import RunConfig, RunDirectory


def load(model: str | Path, *, device: str = "auto") -> Translator:
    """The model in a run directory, ready for use."""
    run = RunDirectory(Path(model))
    settings, task, network = run.load()
    assert isinstance(task, Translate)
    assert isinstance(network, Seq2Seq)
    return Translator(run, settings, task, network, device_named(device))


def train(
    recipe: str | Path | config.Tables,
    *,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    device: str = "auto",
    resume: bool = False,
    where: str = "recipe",
) -> Run:
    """Prepare a run. Iterating over it trains and yields events; asking for its `path` trains to the end."""
    if isinstance(recipe, dict):
        tables = recipe
    else:
        tables, where = config.read(Path(recipe)), str(recipe)
    tables = config.override(tables, list(settings))
    place = Path(out) if out is not None else free_directory(Path("runs"), tables)
    return Run(prepare(tables, place, device_named(device), where=where, resume=resume))


def free_directory(parent: Path, tables: config.Tables) -> Path:
    """The first of ``runs/translate-1``, ``runs/translate-2``, ... that is not there yet."""
    name = tables.get("task", {}).get("name", "run")
    return next(path for n in count(1) if not (path := parent / f"{name}-{n}").exists())


class Run:
    """A training run: iterate over it to train and to see what happens."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.training = Training(prepared)
        self._begun = False

    def __iter__(self) -> Iterator[Event]:
        self._begun = True
        return self.training.run()

    @property
    def path(self) -> Path:
        """The run directory; trains to the end first if nobody has iterated over the run."""
        if not self._begun:
            for _ in self:
                pass
        return self.prepared.run.path


class Translator:
    """A trained translation model."""

    def __init__(
        self, run: RunDirectory, settings: RunConfig, task: Translate, network: Seq2Seq, device: torch.device
    ) -> None:
        self.run, self.config, self.task, self.device = run, settings, task, device
        self.network = network.to(device)

    @overload
    def translate(self, text: str, **options: Any) -> list[Translation]: ...

    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[list[Translation]]: ...

    def translate(self, text: str | Sequence[str], **options: Any) -> list[Translation] | list[list[Translation]]:
        """The best translations of a text, best first; of several texts, a list for each.

        Options are those of `Search`: beam, alpha, n_best, sample, temperature, top_k, top_p, seed, batch. With
        `attention`, each translation holds what its tokens looked at: (layers, heads, tokens, source_tokens).
        """
        if isinstance(text, str):
            return next(self.stream([[text]], **options))[1]
        return [best for _, best in self.stream(windows(text), **options)]

    def stream(
        self, texts: Iterable[Sequence[str]], *, aligned: bool = True, attention: bool = False, **options: Any
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Translate windows of texts as they come; gives each text with its translations, in order."""
        search = Search(**options)
        return self.task.translate(self.network, texts, search, self.device, aligned=aligned, attention=attention)

    def force(self, source: str, target: str, *, alpha: float = Search.alpha) -> Forced:
        """The score of a given translation, and the cross-attention of every layer and head for it."""
        ids = self.task.tokenizers.source.encode(source), self.task.tokenizers.target.encode(target)
        return next(self.task.force(self.network, [ids], self.device, alpha))

    def look(self, text: str, target: str | None = None, **options: Any) -> Seen:
        """What the model does with a text while it writes a given target, or the translation that wins the search.

        Options are those of `Search`.
        """
        tokenizers = self.task.tokenizers
        if not isinstance(text, str):
            raise InputError(f"one text is looked at, as a str, not {type(text).__name__}; look at several one by one")
        if not text.strip():
            raise InputError("there is nothing to look at: the text is empty; give at least one word")
        source = tokenizers.source.encode(text)
        self.task.check_lengths(self.network, [(0, source)], tokenizers.source)
        if target is not None and options:
            raise InputError(f"a target is given, so nothing is searched; leave out: {', '.join(options)}")
        if target is None:
            best = self.task.search(self.network, [source], Search(**options), self.device)[0][0]
            written, facts = (
                list(best.ids[:-1]),
                {"target": tokenizers.target.decode(best.ids[:-1]), "score": best.score},
            )
        else:
            written, facts = tokenizers.target.encode(target), {"target": target}
        return Seen(self._subject(source, written), {"model": str(self.run.path), "text": text, **facts})

    def evaluate(
        self,
        data: Sequence[str],
        *,
        columns: Sequence[str] = (),
        skip_empty: bool = False,
        lowercase: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """BLEU, chrF and perplexity on parallel files, with signatures and counts."""
        pairs = list(read_pairs(data, columns, skip_empty=skip_empty))
        sources, references = zip(*pairs, strict=True)
        ids = list(zip(*self.task.encode(pairs), strict=True))
        nll, n_tokens = self.task.likelihood(self.network, ids, self.device)
        found = track(self.stream(windows(sources), aligned=False, **options), "translating", len(pairs))
        scores = translation_score([best[0].text for _, best in found], references, lowercase=lowercase)
        return {
            "task": self.task.name,
            "n": len(pairs),
            "bleu": scores.bleu,
            "bleu_signature": scores.bleu_signature,
            "chrf": scores.chrf,
            "chrf_signature": scores.chrf_signature,
            "exact": scores.exact,
            "perplexity": perplexity(nll, n_tokens),
            "tokens": n_tokens,
        }

    def identify(
        self,
        data: Sequence[str],
        *,
        stack: str = "all",
        sentences: int = SENTENCES,
        maps: Sequence[str] = tuple(MAPS),
        seed: int = 0,
        out: str | Path | None = None,
    ) -> Identification:
        """How many tokens can be told from their hidden vectors, layer by layer (look/identify.py).

        `data` is one file of texts, which only the encoder reads, or pairs as `evaluate` takes them, for the decoder
        as well. So many `sentences` are drawn from it. With `out`, results and a figure are kept in that directory,
        and a call that was interrupted goes on.
        """
        stacks = _stacks(stack, _paired(data))
        check_maps(maps)
        subjects, n_read = self._subjects(data, sentences, seed)
        return identify(
            subjects,
            stacks=stacks,
            maps=maps,
            seed=seed,
            device=self.device,
            about={"model": str(self.run.path), "data": list(data), "read": n_read},
            out=None if out is None else Path(out),
        )

    def survey(
        self, data: Sequence[str], *, kind: str | None = None, sentences: int = SENTENCES, seed: int = 0
    ) -> Survey:
        """How attention and what of it is identifiable differ as texts grow (look/survey.py); data as in `identify`."""
        kinds = list(KINDS) if _paired(data) else ["encoder"]
        if kind is not None and kind not in kinds:
            raise InputError(f"{kind} attention cannot be surveyed on {' '.join(data)}; there are: {', '.join(kinds)}")
        subjects, n_read = self._subjects(data, sentences, seed)
        about = {"model": str(self.run.path), "data": list(data), "read": n_read, "texts": len(subjects)}
        return survey(subjects, kinds if kind is None else [kind], about)

    def _subjects(self, data: Sequence[str], sentences: int, seed: int) -> tuple[list[Subject], int]:
        """Sentences drawn from files, as the viewer takes them, and how many were read; without targets, no target."""
        paired = _paired(data)
        drawn = draw(read_pairs(data, skip_empty=True) if paired else _texts(data[0]), sentences, seed)
        sides = [self.task.tokenizers.source, self.task.tokenizers.target]
        ids = [[side.encode(text) for side, text in zip(sides, example, strict=False)] for example in drawn.examples]
        chosen = usable(ids, self.network.config.n_positions - 1)
        if len(drawn.examples) < drawn.n_read:
            say(f"{len(drawn.examples):,} of {drawn.n_read:,} sentences are drawn, by seed {seed}")
        return [self._subject(*example, *([] if paired else [[]])) for example in chosen], drawn.n_read

    def _subject(self, source: list[int], target: list[int]) -> Subject:
        """A pair of ids as the viewer takes it: alone in its row, with the names of its tokens."""
        tokenizers, network = self.task.tokenizers, self.network
        self.task.check_pairs(network, [(source, target)])
        batch = pairs_to_rows([(source, target)]).to(self.device)

        def side(tokenizer: Tokenizer, ids: list[int], entrance: str) -> Side:
            return Side(tokenizer.pieces(ids), tokenizer.words(ids), entrance)

        sides = {
            "encoder": side(tokenizers.source, [*source, EOS], "source_embedding.out"),
            "decoder": side(tokenizers.target, [SOS, *target], "target_embedding.out"),
        }
        return Subject(
            network,
            sides,
            body=lambda: network.decoded(batch.source, batch.target_in),
            head=network.logits,
            predicted=batch.target_out[0],
        )

    def info(self) -> dict[str, Any]:
        """What this model is and how it was made."""
        tables = self.config.tables()
        return {
            "task": self.task.name,
            "architecture": self.config.model.architecture,
            "parameters": sum(weight.numel() for weight in self.network.parameters()),
            "vocabulary": len(self.task.tokenizers.target),
            "config": tables,
            "training": self.run.read_metrics(),
        }


def _paired(data: Sequence[str]) -> bool:
    """Whether files hold pairs: two files of lines or a table, not one file of lines."""
    return len(data) != 1 or file_kind(paths_of(data)[0]) != "text"


def _stacks(asked: str, paired: bool) -> list[str]:
    """The stacks to measure; the decoder reads targets, so it can be measured only where there are some."""
    there = ["encoder", "decoder"]
    if asked not in (*there, "all"):
        raise InputError(f"no stack is called '{asked}'; {did_you_mean(asked, [*there, 'all'])}")
    if asked == "decoder" and not paired:
        raise InputError("the decoder reads targets; give pairs, as in test.en test.fr, or a table")
    return [name for name in there[: 1 + paired] if asked in (name, "all")]


def _texts(path: str) -> Iterator[tuple[str]]:
    """The lines of a file that hold a text; a warning counts the others."""
    n_texts = n_blank = 0
    for line in lines(path):
        if line.strip():
            n_texts += 1
            yield (line,)
        else:
            n_blank += 1
    if not n_texts:
        raise DataError(path, "no texts; give one a line")
    if n_blank:
        warn(f"{path}: left out {n_blank:,} of {n_texts + n_blank:,} lines: empty")


class _CallableModule(ModuleType):
    """`regard.train` is the subpackage; calling it is `train` above, whichever was imported first."""

    def __call__(self, *arguments: Any, **options: Any) -> Run:
        return train(*arguments, **options)


sys.modules["regard.train"].__class__ = _CallableModule
