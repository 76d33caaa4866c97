"""Pre-training of an encoder on plain text: masked words, and next sentences (SPEC 5; Devlin 2019, Liu 2019).

Documents are cut into pieces of text. With "masked+next" an input is a pair of pieces, half of them adjacent
in their document, half with a second piece from another one; with "masked" it is one longer piece. Pairs are drawn
once, when the text is encoded; which words are masked is drawn anew for every batch of every epoch, on the device,
and the softmax over the vocabulary is computed at these alone.

    of all tokens 15 % are chosen:   80 % become [MASK],   10 % another token,   10 % stay
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from regard.data.batches import IGNORE, PartedRows, TextBatch, by_text
from regard.data.corpus import Corpus, Example
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, InputError
from regard.metrics import perplexity
from regard.models.exchange import Found
from regard.models.families import MASKED
from regard.models.heads import POOLINGS, MaskedHead, Pooler
from regard.models.interfaces import TextModel
from regard.models.presets import EncoderConfig, TextConfig
from regard.nn import Linear, Loss, cross_entropy
from regard.tasks.next_sentences import next_sentences, paired, pieces_of, warn_of_few
from regard.tasks.reading import LENGTHS, ROLES, Reading, framed_rows, stored, stored_inputs, texts_of
from regard.tasks.single import check_length, refuse_columns
from regard.tasks.task import Amount, Goal
from regard.text.documents import paths_of, read_documents
from regard.text.framing import Framed
from regard.text.tokenizer import FILE, Tokenizer
from regard.text.vocabulary import TokenizerConfig, train_tokenizer

OBJECTIVES = {
    "masked+next": ("masked", "pooler", "next"),
    "masked": ("masked",),
    "pooled": ("pooler",),
    "none": (),
}
"""What is learned, and the heads for it; a body from elsewhere may have none that can be trained."""

MASK, OTHER = 0.8, 0.1
"""Shares of the chosen tokens that become [MASK], and another token."""

SCORED = 1000
"""Texts on which the accuracies are measured at each validation, at most."""

TOGETHER = 32
"""Texts whose masked words are found at once."""

MARK = "[MASK]"
SPACE = "▁"
"""How pieces show a space."""

NO_WORDS = "this model has no head for masked words; it gives vectors: use embed, match or look"

Ids = list[int]


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """The recipe's ``[task]`` table; `pooling` and `normalised` say how texts become vectors, where nobody asks."""

    name: Literal["pretrain"] = "pretrain"
    objective: Literal["masked+next", "masked", "pooled", "none"] = "masked+next"
    length: int = 128
    masked: float = 0.15
    pooling: Literal["cls", "mean"] = "mean"
    normalised: bool = False

    def __post_init__(self) -> None:
        check_length(self.length, LENGTHS)
        if not 0.01 <= self.masked <= 0.9:
            raise ConfigError(f"task.masked = {self.masked}; expected a share of the tokens, from 0.01 to 0.9")
        assert self.pooling in POOLINGS, self.pooling


class Chosen(NamedTuple):
    """What is to be found again: at which of all positions, which tokens stood there, and what is shown instead."""

    places: Int[Tensor, " N"]
    wanted: Int[Tensor, " N"]
    shown: Int[Tensor, "B T"]


@dataclass(frozen=True)
class Filling:
    """A word for a mask: how probable it is, and the text with it."""

    word: str
    probability: float
    text: str


class Pretrain(Reading):
    """From plain text to an encoder."""

    name = "pretrain"
    verb = "fill"
    Config = PretrainConfig
    families = MASKED
    columns = ("text", "turn", "elsewhere")
    unit = "documents (with blank lines between them)"
    inherited = ("pooling", "normalised")
    goal = Goal("valid_perplexity", "perplexity of masked words", higher_is_better=False)

    @classmethod
    def habits(cls, amount: Amount, device: torch.device) -> dict[str, Any]:
        rate = round(min(1e-3, 0.25 / amount.d_model), 6)
        return {"learning_rate": rate, "schedule": "linear", "weight_decay": 0.01, "average": 1}

    def __init__(self, config: PretrainConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.pooling, self.normalised = config.pooling, config.normalised
        # Plain numbers, for what is compiled cannot ask the tokenizer.
        self._n_words, self._special_ids = len(tokenizer), sorted(tokenizer.specials)
        self.mask = tokenizer.special("mask") if "masked" in OBJECTIVES[config.objective] else -1
        self.verb = "fill" if self.mask >= 0 else "embed"

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return paths_of(data)

    @staticmethod
    def read(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        refuse_columns(columns)
        return read_documents(data)

    @classmethod
    def learn(
        cls, config: PretrainConfig, tokenizer: TokenizerConfig, corpus: Corpus, ready: Tokenizer | None = None
    ) -> Pretrain:
        if "masked" not in OBJECTIVES[config.objective]:
            raise ConfigError(
                f'task.objective = "{config.objective}" learns nothing; accepted: "masked+next", "masked"'
            )
        return cls(config, ready or train_tokenizer(corpus.texts(0), tokenizer, cls.specials))

    @classmethod
    def load(cls, config: PretrainConfig, tokenizer: TokenizerConfig, directory: Path) -> Pretrain:
        masked = "masked" in OBJECTIVES[config.objective]
        return cls(config, Tokenizer.load(directory / FILE, (*ROLES, "mask") if masked else ROLES))

    @classmethod
    def adopt(cls, found: Found) -> Pretrain:
        objective: Any = next(name for name, heads in OBJECTIVES.items() if heads == found.heads)
        return cls(PretrainConfig(**found.task, objective=objective), found.tokenizers.source)

    def heads(self, config: TextConfig) -> Mapping[str, nn.Module]:
        assert isinstance(config, EncoderConfig), config
        makers: dict[str, Callable[[], nn.Module]] = {
            "masked": lambda: MaskedHead(config, self.vocabulary),
            "pooler": lambda: Pooler(config),
            "next": lambda: Linear(config.d_model, 2),
        }
        return {name: makers[name]() for name in OBJECTIVES[self.config.objective]}

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """The inputs made of these documents, at what position each has its second part, and is that from elsewhere?"""
        documents = [text.split("\n") for (text,) in examples]
        encoded = iter(self.tokenizer.encode_batch([line for document in documents for line in document]))
        lines = [[next(encoded) for _ in document] for document in documents]
        if "next" in OBJECTIVES[self.config.objective]:
            most = (self.length - self.frame.extra(paired=True)) // 2
            rng = np.random.default_rng(_seed(examples))
            drawn = next_sentences([paired(pieces_of(document, most), rng) for document in lines], rng)
            inputs = [self.frame.around(one.first, one.second) for one in drawn]
            elsewhere = [[int(not one.adjacent)] for one in drawn]  # 1 is from elsewhere, as in BERT's weights
        else:
            most = self.length - self.frame.extra(paired=False)
            inputs = [self.frame.around(piece) for document in lines for piece in pieces_of(document, most)]
            elsewhere = [[0]] * len(inputs)
        return [[each.ids for each in inputs], [[each.turn] for each in inputs], elsewhere]

    def remark(self, store: TokenStore) -> None:
        if "next" in OBJECTIVES[self.config.objective]:
            few = int(store["elsewhere"].ids.sum(dtype=np.int64))
            warn_of_few(few, len(store), ", or pass --set task.objective=masked")

    def width(self, lengths: Int[np.ndarray, "N sides"]) -> int:
        length: int = self.config.length
        return length

    def batch(self, store: TokenStore, placement: Placement) -> TextBatch:
        rows = self.rows(store, placement)
        elsewhere = stored(store, "elsewhere", placement.items).astype(np.int64)
        labels = by_text(elsewhere, placement, texts_of(placement), IGNORE)
        n_real = int(self._real(rows).sum())
        return TextBatch(rows, labels, self._share(n_real), int((rows.segment > 0).sum()))

    def loss(self, model: TextModel, batch: TextBatch) -> Loss:
        """The masked words and, where they are learned, the next sentences, each averaged by itself."""
        chosen = self.choose(batch.rows)
        hidden = model(replace(batch.rows, ids=chosen.shown))
        words = self._words(model, hidden, chosen)
        if "next" not in model.heads:
            return words
        following = cross_entropy(self._following(model, hidden, batch.rows, batch.labels.shape[1]), batch.labels)
        mean = following.total / following.n_tokens.clamp(min=1)
        return Loss(words.total + mean * words.n_tokens, words.nll, words.n_tokens)

    def choose(self, rows: PartedRows, generator: torch.Generator | None = None) -> Chosen:
        """Draw the tokens to be found again, as many in every batch of one shape; those too many are not counted."""
        by: Any = {} if generator is None else {"generator": generator}  # given None, a compiler has no fast way
        ids, real = rows.ids.flatten(), self._real(rows).flatten()
        most = math.ceil(self.config.masked * ids.numel())
        order = torch.rand(ids.shape, device=ids.device, **by).masked_fill(~real, -1.0)
        places = order.topk(most).indices
        counted = torch.arange(most, device=ids.device) < self._share(real.sum())
        stood = ids[places]
        draw = torch.rand(most, device=ids.device, **by)
        other = torch.randint(self._n_words, (most,), device=ids.device, dtype=ids.dtype, **by)
        instead = torch.where(draw < MASK, self.mask, torch.where(draw < MASK + OTHER, other, stood))
        shown = ids.scatter(0, places, torch.where(counted, instead, stood).to(ids.dtype))
        return Chosen(places, torch.where(counted, stood, IGNORE).long(), shown.view_as(rows.ids))

    def _share(self, n_real: Any) -> Any:
        """How many of so many tokens are chosen; the same for a number and a tensor."""
        few = n_real * round(1000 * self.config.masked) // 1000
        return max(1, few) if isinstance(few, int) else few.clamp(min=1)

    def _real(self, rows: PartedRows) -> Bool[Tensor, "B T"]:
        """Which positions hold a token of the text."""
        specials = torch.tensor(self._special_ids, dtype=rows.ids.dtype, device=rows.ids.device)
        return (rows.segment > 0) & (rows.ids[..., None] != specials).all(-1)

    @staticmethod
    def _words(model: TextModel, hidden: Tensor, chosen: Chosen) -> Loss:
        head = model.heads["masked"]
        assert isinstance(head, MaskedHead)
        return head.loss(hidden.flatten(0, 1)[chosen.places], model.embedding.tokens.weight, chosen.wanted)

    @staticmethod
    def _following(model: TextModel, hidden: Tensor, rows: PartedRows, n_texts: int) -> Tensor:
        scores: Tensor = model.heads["next"](model.heads["pooler"](hidden, rows, n_texts))
        return scores

    def score(self, model: TextModel, store: TokenStore, device: torch.device) -> dict[str, float]:
        """How often the likeliest word is the masked one, and how often adjacent pieces are told from others."""
        fitting = np.flatnonzero(store["text"].lengths <= model.config.n_positions)[:SCORED]
        found = self._found(model, stored_inputs(store, fitting), stored(store, "elsewhere", fitting).tolist(), device)
        return {name: value for name, value in found.items() if name.endswith("accuracy")}

    def _found(
        self, model: TextModel, texts: Sequence[Framed], elsewhere: Sequence[int], device: torch.device
    ) -> dict[str, float]:
        """What is found again of masked words, and of next sentences; the same words are masked at every call."""
        generator = torch.Generator(device).manual_seed(0)
        nll, sums = 0.0, Counter[str]()
        for start in range(0, len(texts), TOGETHER):
            rows = framed_rows(texts[start : start + TOGETHER], self.frame.pad).to(device)
            chosen = self.choose(rows, generator=generator)
            hidden = model(replace(rows, ids=chosen.shown))
            logits = self.logits(model, hidden.flatten(0, 1)[chosen.places])
            loss, right = cross_entropy(logits, chosen.wanted), (logits.argmax(-1) == chosen.wanted).sum()
            nll += float(loss.nll)
            sums.update(tokens=int(loss.n_tokens), right=int(right), texts=len(rows.ids))
            if "next" in model.heads:
                wanted = torch.tensor(elsewhere[start : start + TOGETHER], device=device)
                said = self._following(model, hidden, rows, 1)[:, 0].argmax(-1)
                sums.update(following=int((said == wanted).sum()))
        found = {"perplexity": perplexity(nll, sums["tokens"]), "masked_accuracy": sums["right"] / sums["tokens"]}
        told_apart = "next" in model.heads and len(set(elsewhere)) > 1  # of one kind alone it would say nothing
        return found | ({"next_accuracy": sums["following"] / sums["texts"]} if told_apart else {})

    @torch.inference_mode()
    def evaluate(self, model: TextModel, data: Sequence[str], device: torch.device) -> dict[str, Any]:
        """The same on plain text, as it was cut in training."""
        if "masked" not in model.heads:
            raise InputError(NO_WORDS)
        texts, turns, elsewhere = self.within(model.config.n_positions).encode(list(read_documents(data)))
        inputs = [Framed(ids, turn, 1, 0) for ids, (turn,) in zip(texts, turns, strict=True)]
        apart = [each[0] for each in elsewhere]
        if "next" in model.heads:
            warn_of_few(sum(apart), len(apart), "; without any, next sentences are not scored")
        found = self._found(model, inputs, apart, device)
        return {"task": self.name, "n": len(inputs), **found}

    def logits(self, model: TextModel, hidden: Tensor) -> Tensor:
        """Scores of every word, from what the encoder made of tokens."""
        if "masked" not in model.heads:
            raise InputError(NO_WORDS)
        scores: Tensor = model.heads["masked"](hidden, model.embedding.tokens.weight)
        return scores

    @property
    def _mark(self) -> str:
        return self.tokenizer.pieces([self.mask])[0]

    def has_mask(self, text: str) -> bool:
        """Whether a text has a word to be found."""
        return len(self._parted(text)) > 1

    def _parted(self, text: str) -> list[str]:
        """A text and the masks in it by turns, as they are written: text, mask, text, ..., text."""
        return re.split(f"({re.escape(MARK)}|{re.escape(self._mark)})", text)

    def masked_input(self, text: str) -> Framed:
        """A text in which [MASK], or what the vocabulary calls it, stands for words to be found."""
        if self.mask < 0:
            raise InputError(NO_WORDS)
        if not self.has_mask(text):
            raise InputError(f"no {MARK} in '{text[:40]}'; put it where a word is to be found")
        parts = self._parted(text)[::2]
        ids = self.tokenizer.encode(parts[0].rstrip()) if parts[0].strip() else []
        for part in parts[1:]:
            ids += [self.mask, *self._after_mask(part)]
        return self.frame.around(ids)

    def _after_mask(self, part: str) -> Ids:
        return self.tokenizer.encode_on(part.rstrip() if part.strip() else "")

    def fill(self, model: TextModel, text: str, k: int, device: torch.device) -> list[list[Filling]]:
        """The k likeliest words for each mask of a text, each by itself, with the text so filled, else as given."""
        framed = self.masked_input(text)
        if len(framed.ids) > model.config.n_positions:
            most, fix = model.config.n_positions, "leave out what is far from the mask"
            raise InputError(f"the text has {len(framed.ids):,} tokens; this model takes {most:,}; {fix}")
        rows = framed_rows([framed], self.frame.pad).to(device)
        places = [place for place, index in enumerate(framed.ids) if index == self.mask]
        with torch.inference_mode():
            probabilities = self.logits(model, model(rows)[0, places]).float().softmax(-1).cpu()
        likely = probabilities.topk(min(k, probabilities.shape[-1]))
        parts, found = self._parted(text), []
        for number, (shares, indices) in enumerate(zip(*likely, strict=True)):
            before, after = "".join(parts[: 2 * number + 1]), "".join(parts[2 * number + 2 :])
            texts = [self._put(before, index) + after for index in indices.tolist()]
            words = [piece.lstrip(SPACE) for piece in self.tokenizer.pieces(indices.tolist())]
            found.append([Filling(*each) for each in zip(words, shares.tolist(), texts, strict=True)])
        return found

    def _put(self, before: str, index: int) -> str:
        """What stands before a mask, as it was written, and a piece for it; one that goes on a word touches it."""
        tokenizer = self.tokenizer
        word, touching = tokenizer.words([index])[0].text.strip(SPACE), before and not before[-1].isspace()
        if before.strip() and len(tokenizer.words([index, index])) == 1:
            before = before.rstrip()
        elif touching and (
            tokenizer.pieces([index])[0].startswith(SPACE) or (before[-1].isalnum() and word[:1].isalnum())
        ):
            before += " "
        return before + word


def _seed(examples: Sequence[Example]) -> int:
    return int.from_bytes(blake2b(examples[0][0].encode(), digest_size=8).digest())
