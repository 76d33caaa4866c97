"""A trained translator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.model import Model, TokenIds, check_options, check_text
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.generate import DecodingConfig
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.metrics import perplexity, translation_score
from regard.models.interfaces import Seq2SeqModel
from regard.progress import track
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.translate import ForcedDecoding, Translation, TranslationTask
from regard.text.pairs import read_pairs
from regard.text.tokenizer import Tokenizer


class Translator(Model):
    """A trained translation model."""

    stacks = ("encoder", "decoder")

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, TranslationTask)
        assert isinstance(network, Seq2SeqModel)
        self.task, self.network = task, network

    @property
    def _network(self) -> nn.Module:
        return self.network

    @property
    def _max_text_tokens(self) -> int:
        return self.network.config.n_positions - 1

    @property
    def _vocabulary_size(self) -> int:
        return len(self.task.tokenizers.target)

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
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
            return next(self.translate_iterable([[text]], **options))[1]
        return [best for _, best in self.translate_iterable(buffered_read(text), **options)]

    def translate_iterable(
        self, texts: Iterable[Sequence[str]], *, aligned: bool = True, attention: bool = False, **options: Any
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Translate buffers of texts lazily; gives each text with its translations, in order."""
        return self.task.translate(
            self.network,
            texts,
            _parse_search_options(options),
            self.device,
            with_alignment=aligned,
            with_attention=attention,
        )

    def force_decode(self, source: str, target: str, *, alpha: float = DecodingConfig.alpha) -> ForcedDecoding:
        """The score of a given translation, and the cross-attention of every layer and head for it."""
        ids = self.task.tokenizers.source.encode(source), self.task.tokenizers.target.encode(target)
        return next(self.task.force_decode(self.network, [ids], self.device, alpha))

    def look(self, text: str, target: str | None = None, **options: Any) -> Inspection:
        """What the model does with a text while it writes a given target, or the translation that wins the search.

        Options are those of `Search`.
        """
        tokenizers = self.task.tokenizers
        check_text(text)
        if "pair" in options:
            raise InputError("a translator reads one text; leave out the pair, or give a target")
        source = tokenizers.source.encode(text)
        self.task.check_lengths(self.network, [(0, source)], tokenizers.source)
        if target is not None and options:
            raise InputError(f"a target is given, so nothing is searched; leave out: {', '.join(options)}")
        if target is None:
            best = self.task.generate(self.network, [source], _parse_search_options(options), self.device)[0][0]
            written, facts = (
                list(best.ids[:-1]),
                {"target": tokenizers.target.decode(best.ids[:-1]), "score": best.score},
            )
        else:
            written, facts = tokenizers.target.encode(target), {"target": target}
        return Inspection(self._build_look_target(source, written), {"model": str(self.path), "text": text, **facts})

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
        if foreign := options.keys() - {field.name for field in fields(DecodingConfig)}:
            raise InputError(f"a translator reads whole sentences; leave out: {', '.join(sorted(foreign))}")
        pairs = list(read_pairs(data, columns or self.config.data.columns, skip_empty=skip_empty))
        sources, references = zip(*pairs, strict=True)
        ids = list(zip(*self.task.encode(pairs), strict=True))
        nll, n_tokens = self.task.compute_nll(self.network, ids, self.device)
        found = track(
            self.translate_iterable(buffered_read(sources), aligned=False, **options), "translating", len(pairs)
        )
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

    def _build_look_target(self, *sides_ids: TokenIds) -> LookTarget:
        """Without a target, nothing is written."""
        source, target = (*sides_ids, [])[:2]
        tokenizers, network = self.task.tokenizers, self.network
        self.task.check_pairs(network, [(source, target)])
        batch = self.task.make_pair_batch([(source, target)]).to(self.device)

        def side(tokenizer: Tokenizer, ids: list[int], entrance: str) -> Side:
            return Side(tokenizer.display_tokens(ids), tokenizer.words(ids), entrance)

        sides = {
            "encoder": side(tokenizers.source, self.task.special_tokens.wrap_source(source), "source_embedding.out"),
            "decoder": side(tokenizers.target, self.task.special_tokens.wrap_target_in(target), "target_embedding.out"),
        }
        written = tuple(tokenizers.target.display_tokens(batch.target_out[0].tolist()))
        sides["decoder"] = replace(sides["decoder"], next_tokens=written)
        return LookTarget(
            network,
            sides,
            run_layers=lambda: network.hidden_states(batch.source, batch.target_in),
            head=network.logits,
            predicted_ids=batch.target_out[0],
        )


def _parse_search_options(options: dict[str, Any]) -> DecodingConfig:
    check_options(options, DecodingConfig)
    return DecodingConfig(**options)
