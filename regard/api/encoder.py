"""Trained encoders: `Filler` finds masked words, `Classifier` labels texts, `Tagger` labels words; all give vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot

from regard.api.model import Ids, one_text
from regard.api.vectors import Vectors
from regard.data.batches import PartedRows
from regard.data.buckets import windows
from regard.errors import InputError
from regard.look.seen import Seen
from regard.look.subject import Side, Subject
from regard.models.heads import Pooler
from regard.models.interfaces import TextModel
from regard.tasks import Task
from regard.tasks.classify import Classify, Pair, Verdict
from regard.tasks.pretrain import Filling, Pretrain
from regard.tasks.reading import Reading, framed_rows
from regard.tasks.tag import Tag, Tagged
from regard.text.framing import Framed
from regard.text.words import running, spaced
from regard.train.run import RunConfig


class Encoder(Vectors):
    """A trained encoder."""

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, settings, task, network, device)
        assert isinstance(task, Reading)
        assert isinstance(network, TextModel)
        self.reading, self.network = task, network

    @property
    def _network(self) -> nn.Module:
        return self.network

    @property
    def _longest(self) -> int:
        return self.network.config.n_positions - self.reading.frame.extra(paired=False)

    @property
    def _vocabulary(self) -> int:
        return len(self.reading.tokenizer)

    def _encoded(self, example: Sequence[str]) -> list[Ids]:
        return [self.reading.tokenizer.encode(text) for text in example]

    def look(self, text: str, pair: str | None = None, **options: Any) -> Seen:
        """What the model does with a text, or with a pair of texts."""
        one_text(text)
        if options:
            raise InputError(f"an encoder searches nothing; leave out: {', '.join(options)}")
        encoded = self._looked_at(text, pair)
        most = self.network.config.n_positions
        if len(encoded.ids) > most:
            raise InputError(
                f"the text has {len(encoded.ids):,} tokens, special ones included; this model takes {most:,}; split it"
            )
        facts = {"model": str(self.path), "text": text, **({"pair": pair} if pair else {})}
        subject, rows = self._vectors_of(encoded)
        return Seen(self._explained(subject, rows, text), {**facts, **self._said(text, pair)})

    def _said(self, text: str, pair: str | None) -> dict[str, object]:
        """What the model says of the text, for a reader."""
        return {}

    def _looked_at(self, text: str, pair: str | None) -> Framed:
        sides = self._encoded([text] if pair is None else [text, pair])
        return self.reading.frame.around(sides[0], sides[1] if pair is not None else None)

    def _subject(self, *sides: Ids) -> Subject:
        return self._vectors_of(self.reading.frame.around(*sides[:2]))[0]

    def _vectors_of(self, framed: Framed) -> tuple[Subject, PartedRows]:
        """The input as the viewer takes it, of which vectors are made and no more, and its row."""
        tokenizer, network = self.reading.tokenizer, self.network
        rows = framed_rows([framed], self.reading.frame.pad).to(self.device)
        side = Side(tokenizer.pieces(framed.ids), tokenizer.words(framed.ids), "embedding.out")
        nothing = rows.ids.new_zeros(0).long()
        return Subject(network, {"encoder": side}, body=lambda: network(rows), head=None, predicted=nothing), rows

    def _explained(self, subject: Subject, rows: PartedRows, text: str) -> Subject:
        """The subject with what this model predicts of the text; vectors alone predict nothing."""
        return subject


class Filler(Encoder):
    """A pre-trained encoder, which may know masked words."""

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, settings, task, network, device)
        assert isinstance(task, Pretrain)
        self.task = task

    def fill(self, text: str, k: int = 5) -> list[list[Filling]]:
        """The k likeliest words for each [MASK] of a text."""
        return self.task.fill(self.network, text, k, self.device)

    def _said(self, text: str, pair: str | None) -> dict[str, object]:
        if pair is not None or "masked" not in self.network.heads or not self.task.has_mask(text):
            return {}
        return {"said": ", ".join(f"{words[0].word} ({words[0].probability:.0%})" for words in self.fill(text, 1))}

    def evaluate(self, data: Sequence[str], **others: Any) -> dict[str, Any]:
        """Accuracy and perplexity of masked words, and accuracy of next sentences, on plain text."""
        _refuse(others, "plain text is evaluated as it is")
        return self.task.evaluate(self.network, data, self.device)

    def _looked_at(self, text: str, pair: str | None) -> Framed:
        masked = pair is None and "masked" in self.network.heads and self.task.has_mask(text)
        return self.task.masked_input(text) if masked else super()._looked_at(text, pair)

    def _explained(self, subject: Subject, rows: PartedRows, text: str) -> Subject:
        """Of each token its own probability; of a mask that of the likeliest word."""
        if "masked" not in self.network.heads:
            return subject
        ids = rows.ids[0].long()
        with torch.inference_mode():
            likeliest = self.task.logits(self.network, self.network(rows))[0].argmax(-1)
        predicted = torch.where(ids == self.task.mask, likeliest, ids)
        return replace(subject, head=lambda hidden: self.task.logits(self.network, hidden), predicted=predicted)


class Classifier(Encoder):
    """An encoder that labels texts, or pairs of them."""

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, settings, task, network, device)
        assert isinstance(task, Classify)
        self.task = task

    def classify(self, text: str | Sequence[str | Pair], pair: str | None = None) -> Any:
        """The label of a text (or of a text and its pair) with probabilities; of several, a list."""
        if isinstance(text, str):
            return self.task.classify(self.network, [(_filled(text), pair or "")], self.device)[0]
        return list(self.stream(text))

    def _looked_at(self, text: str, pair: str | None) -> Framed:
        self.task.check_kind(text, pair or "")
        return super()._looked_at(text, pair)

    def _said(self, text: str, pair: str | None) -> dict[str, object]:
        verdict = self.classify(text, pair)
        score = verdict.score is not None
        return {"said": f"{verdict.score:.3f}" if score else f"{verdict.label} ({verdict.probability:.0%})"}

    def stream(self, texts: Iterable[str | Pair]) -> Iterator[Verdict]:
        """Label texts, or pairs, as they come."""
        for window in windows(texts):
            pairs = [(each, "") if isinstance(each, str) else each for each in window]
            yield from self.task.classify(self.network, pairs, self.device)

    def evaluate(
        self, data: Sequence[str], *, columns: Sequence[str] = (), skip_empty: bool = False, **others: Any
    ) -> dict[str, Any]:
        """The metrics of SPEC 6.4 on labelled texts."""
        _refuse(others, "a classifier has no such options")
        return self.task.evaluate(self.network, data, columns, skip_empty, self.device)

    def _explained(self, subject: Subject, rows: PartedRows, text: str) -> Subject:
        task, network = self.task, self.network
        pooler = network.heads["pooler"]
        assert isinstance(pooler, Pooler)
        scored = task.config.kind == "score"

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 1 C"]:
            outputs = task.outputs(network, hidden, rows, 1)
            return task.labels.scale.scores(outputs) if scored else outputs

        with torch.inference_mode():
            hidden = network(rows)
            outputs = head(hidden)[0, 0]
            own = (rows.segment == 1)[:, None]
            weights, hops = pooler.pooling.weigh(hidden, rows, own)[0], pooler.pooling.hops(hidden, rows, own)[0, 0]
        best = int(outputs.argmax())
        name = "score" if scored else task.labels.names[best]
        return replace(
            subject,
            head=head,
            predicted=torch.tensor([best], device=outputs.device),
            outputs=(name,),
            reads=lambda: weights,
            hops=(lambda: hops) if pooler.pooling.kind == "attention" else None,
            scored=scored,
        )


class Tagger(Encoder):
    """An encoder that labels words."""

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, settings, task, network, device)
        assert isinstance(task, Tag)
        self.task = task

    def tag(self, text: str | Sequence[str]) -> list[Tagged]:
        """The words of a text with their labels; a list is taken for its words."""
        if isinstance(text, str):
            return self.task.tag_text(self.network, [text], self.device)[0]
        return self.task.tag_words(self.network, [text], self.device)[0]

    def _encoded(self, example: Sequence[str]) -> list[Ids]:
        """As it is tagged: word by word."""
        return [list(chain.from_iterable(self.task.tokenizer.encode_words(_words(text)))) for text in example]

    def _looked_at(self, text: str, pair: str | None) -> Framed:
        if pair is not None:
            raise InputError("a tagger reads single texts; leave out: pair")
        return super()._looked_at(text, pair)

    def _said(self, text: str, pair: str | None) -> dict[str, object]:
        return {"said": " ".join(f"{each.word}/{each.label}" for each in self.tag(text))}

    def stream(self, texts: Iterable[str], *, split: bool = False) -> Iterator[list[Tagged]]:
        """Tag texts as they come; with `split` words are what stands between spaces."""
        for window in windows(texts):
            yield from self.task.tag_text(self.network, window, self.device, spaced if split else running)

    def evaluate(
        self, data: Sequence[str], *, columns: Sequence[str] = (), skip_empty: bool = False, **others: Any
    ) -> dict[str, Any]:
        """Accuracy and, of entities, strict F1, on labelled words, by default of the column it was trained on."""
        _refuse(others, "a tagger has no such options")
        return self.task.evaluate(self.network, data, columns or self.config.data.columns, skip_empty, self.device)

    def _explained(self, subject: Subject, rows: PartedRows, text: str) -> Subject:
        """Of each word its likeliest label, which sits on its first piece."""
        words, n_tokens = _words(text), rows.ids.shape[1]
        ((_, placed),) = self.task.inputs([words], n_tokens)
        first = torch.tensor([place for _, place in placed.words], device=self.device)

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 O C"]:
            scores: Tensor = self.network.heads["tags"](hidden[:, first])
            return scores

        with torch.inference_mode():
            predicted: Int[Tensor, " O"] = head(self.network(rows))[0].argmax(-1)
        labels = [self.task.labels.names[label] for label in predicted.tolist()]
        return replace(
            subject,
            head=head,
            predicted=predicted,
            outputs=tuple(f"{word}/{label}" for word, label in zip(words, labels, strict=True)),
            outputs_side="tagged",
            reads=lambda: one_hot(first, n_tokens),
        )


def _refuse(options: dict[str, Any], because: str) -> None:
    if options:
        raise InputError(f"{because}; leave out: {', '.join(options)}")


def _words(text: str) -> list[str]:
    """The words of plain text, as they are tagged."""
    return [text[start:end] for start, end in running(text)]


def _filled(text: str) -> str:
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    return text
