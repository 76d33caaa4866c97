"""A trained translator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.model import Ids, Model, check_options, one_text
from regard.data.buckets import windows
from regard.errors import InputError
from regard.generate import Search
from regard.look.seen import Seen
from regard.look.subject import Side, Subject
from regard.metrics import perplexity, translation_score
from regard.models.interfaces import PairModel
from regard.progress import track
from regard.tasks import Task
from regard.tasks.translate import Forced, Translate, Translation
from regard.text.pairs import read_pairs
from regard.text.tokenizer import Tokenizer
from regard.train.run import RunConfig


class Translator(Model):
    """A trained translation model."""

    stacks = ("encoder", "decoder")

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, settings, task, network, device)
        assert isinstance(task, Translate)
        assert isinstance(network, PairModel)
        self.task, self.network = task, network

    @property
    def _network(self) -> nn.Module:
        return self.network

    @property
    def _longest(self) -> int:
        return self.network.config.n_positions - 1

    @property
    def _vocabulary(self) -> int:
        return len(self.task.tokenizers.target)

    def _encoded(self, example: Sequence[str]) -> list[Ids]:
        sides = [self.task.tokenizers.source, self.task.tokenizers.target]
        return [side.encode(text) for side, text in zip(sides, example, strict=False)]

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
        return self.task.translate(
            self.network, texts, _search(options), self.device, aligned=aligned, attention=attention
        )

    def force(self, source: str, target: str, *, alpha: float = Search.alpha) -> Forced:
        """The score of a given translation, and the cross-attention of every layer and head for it."""
        ids = self.task.tokenizers.source.encode(source), self.task.tokenizers.target.encode(target)
        return next(self.task.force(self.network, [ids], self.device, alpha))

    def look(self, text: str, target: str | None = None, **options: Any) -> Seen:
        """What the model does with a text while it writes a given target, or the translation that wins the search.

        Options are those of `Search`.
        """
        tokenizers = self.task.tokenizers
        one_text(text)
        if "pair" in options:
            raise InputError("a translator reads one text; leave out the pair, or give a target")
        source = tokenizers.source.encode(text)
        self.task.check_lengths(self.network, [(0, source)], tokenizers.source)
        if target is not None and options:
            raise InputError(f"a target is given, so nothing is searched; leave out: {', '.join(options)}")
        if target is None:
            best = self.task.search(self.network, [source], _search(options), self.device)[0][0]
            written, facts = (
                list(best.ids[:-1]),
                {"target": tokenizers.target.decode(best.ids[:-1]), "score": best.score},
            )
        else:
            written, facts = tokenizers.target.encode(target), {"target": target}
        return Seen(self._subject(source, written), {"model": str(self.path), "text": text, **facts})

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
        if foreign := options.keys() - {field.name for field in fields(Search)}:
            raise InputError(f"a translator reads whole sentences; leave out: {', '.join(sorted(foreign))}")
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

    def _subject(self, *sides_ids: Ids) -> Subject:
        """Without a target, nothing is written."""
        source, target = (*sides_ids, [])[:2]
        tokenizers, network = self.task.tokenizers, self.network
        self.task.check_pairs(network, [(source, target)])
        batch = self.task.pairs([(source, target)]).to(self.device)

        def side(tokenizer: Tokenizer, ids: list[int], entrance: str) -> Side:
            return Side(tokenizer.pieces(ids), tokenizer.words(ids), entrance)

        sides = {
            "encoder": side(tokenizers.source, self.task.signs.source(source), "source_embedding.out"),
            "decoder": side(tokenizers.target, self.task.signs.target(target), "target_embedding.out"),
        }
        return Subject(
            network,
            sides,
            body=lambda: network.decoded(batch.source, batch.target_in),
            head=network.logits,
            predicted=batch.target_out[0],
        )


def _search(options: dict[str, Any]) -> Search:
    check_options(options, Search)
    return Search(**options)
