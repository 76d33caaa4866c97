"""A trained translation model: texts in, translations with scores, tokens and word alignment out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.inputs import check_text, check_texts, refuse_given, split_columns, split_data
from regard.api.model import Model, TokenIds
from regard.api.translation_evaluation import merge_scores, read_pairs_by_direction, score_pairs
from regard.data.buckets import buffered_read
from regard.disk import check_writable, convert_write_errors
from regard.errors import InputError
from regard.generate import DecodingConfig
from regard.generate.config import LENGTH_PENALTIES
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.interfaces import Seq2SeqModel
from regard.predict.shortlist import Shortlist
from regard.predict.shortlist_learning import learn_shortlist
from regard.predict.translation import ForcedDecoding, Translation, TranslationPredictor
from regard.progress import track
from regard.ranges import MAX_VOCABULARY, Range, check_option
from regard.runs.model_loading import digest_model_files
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.translate import TranslationTask
from regard.text.pairs import read_pairs
from regard.text.tokenizer import Tokenizer

SHORTLIST_SIZES = Range(1, MAX_VOCABULARY)
PER_TOKEN, COMMON = 100, 1000
"""Sizes of a shortlist: target tokens for each source token, and target tokens that every translation may contain."""


class Translator(Model):
    """A trained translation model.

    Attributes:
        to: The language that a model of several translates into where a call does not name one.

    Example:
        >>> model = regard.Translator.load("runs/en-fr")
        >>> model.translate("I am good")[0].text
    """

    to: str = ""
    stacks = ("encoder", "decoder")
    network: Seq2SeqModel

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, TranslationTask)
        assert isinstance(network, Seq2SeqModel)
        self.task, self.network = task, network
        self.predictor: TranslationPredictor = task.make_predictor(network, device)

    def _describe(self) -> list[str]:
        directions = self.task.directions
        return [str(directions)] if directions.is_tagged else [" -> ".join(each) for each in directions.known]

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions of this model, as in ("en-fr", "fr-en"); empty where its languages are not recorded."""
        return tuple(map(str, self.task.directions.known))

    def info(self) -> dict[str, Any]:
        about = super().info()
        return {"directions": list(self.directions), **about} if self.directions else about

    def _choose_target(self, to: str) -> str:
        """Return the language to translate into, "" where it is not recorded; refuse one that there is not."""
        return self.task.directions.choose_target(to or self.to)

    @property
    def _max_text_tokens(self) -> int:
        return self.network.config.n_positions - 1

    @property
    def _vocabulary_size(self) -> int:
        return len(self.task.tokenizers.target)

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        source, *targets = example
        return [*self._encode_sources([source]), *map(self.task.tokenizers.target.encode, targets)]

    def _encode_sources(self, texts: Sequence[str], to: str = "") -> list[TokenIds]:
        return self.predictor.encode_sources(texts, to or self.to)

    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        text: str,
        *,
        beam: int | None = None,
        alpha: float = DecodingConfig.alpha,
        n_best: int = 1,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        batch: int = DecodingConfig.batch,
        aligned: bool = True,
        attention: bool = False,
        to: str = "",
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        text: Sequence[str],
        *,
        beam: int | None = None,
        alpha: float = DecodingConfig.alpha,
        n_best: int = 1,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        batch: int = DecodingConfig.batch,
        aligned: bool = True,
        attention: bool = False,
        to: str = "",
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        text: str | Sequence[str],
        *,
        beam: int | None = None,
        alpha: float = DecodingConfig.alpha,
        n_best: int = 1,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        batch: int = DecodingConfig.batch,
        aligned: bool = True,
        attention: bool = False,
        to: str = "",
    ) -> list[Translation] | list[list[Translation]]:
        """Translate a text, or each text of a list.

        Args:
            text: A text, or a list of texts. An empty text has an empty translation.
            beam: The beam width; 1 is greedy search. By default 4, or `n_best` if that is more.
            alpha: The length penalty ((5 + length) / 6) ** alpha of beam search (Wu et al. 2016); 0 is none.
            n_best: The number of translations of each text.
            sample: Draw translations at random instead of searching; `beam` must then be left out.
            temperature: For sampling: the logits are divided by it.
            top_k: For sampling: draw from the k most likely tokens only; None or 0 is all tokens.
            top_p: For sampling: draw from the smallest set of tokens whose probabilities sum to `top_p`.
            seed: Fixes what is drawn.
            batch: The number of texts translated at a time.
            aligned: Align the words of each translation with those of its source.
            attention: Keep the cross-attention weights of each translation.
            to: The language to translate into, for a model of several, as in "fr" (`directions` lists them).

        Returns:
            For one text a list of `Translation`, best first: `text`, `score` (log-probability divided by the length
            penalty), `tokens`, `token_scores`, `alignment` (pairs of source and target word numbers) and, with
            `attention`, a torch tensor of cross-attention weights (layers, heads, tokens, source tokens). For a list
            of texts, a list of such lists, in the same order.

        Example:
            >>> model.translate("I am good", n_best=3)[0].text
            >>> [best.text for best, in model.translate(["I am good", "you are good"])]
        """
        config = DecodingConfig(
            beam=beam,
            alpha=alpha,
            n_best=n_best,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            batch=batch,
        )
        batches = buffered_read(check_texts([text] if isinstance(text, str) else text))
        translations = [
            best for _, best in self.translate_batches(batches, config, aligned=aligned, attention=attention, to=to)
        ]
        return translations[0] if isinstance(text, str) else translations

    def translate_iterable(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        alpha: float = DecodingConfig.alpha,
        n_best: int = 1,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        batch: int = DecodingConfig.batch,
        aligned: bool = True,
        attention: bool = False,
        to: str = "",
    ) -> Iterator[list[Translation]]:
        """Translate texts from an iterable of any length, also an endless one.

        Texts are read 1,024 at a time and sorted by length inside; nothing more is held in memory.

        Args:
            texts: Texts, such as the lines of an open file.
            beam, alpha, n_best, sample, temperature, top_k, top_p, seed, batch, aligned, attention, to: As in
                `translate`.

        Yields:
            The translations of each text, best first, in the order of the texts.
        """
        config = DecodingConfig(
            beam=beam,
            alpha=alpha,
            n_best=n_best,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            batch=batch,
        )
        batches = buffered_read(check_texts(texts))
        return (
            best for _, best in self.translate_batches(batches, config, aligned=aligned, attention=attention, to=to)
        )

    def translate_batches(
        self,
        batches: Iterable[Sequence[str]],
        config: DecodingConfig,
        *,
        aligned: bool = True,
        attention: bool = False,
        to: str = "",
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Translate batches of texts, each sorted by length inside; yield every text with its translations, in order.

        Args:
            batches: Lists of texts.
            config: The search, as a `regard.generate.DecodingConfig`.
            aligned, attention, to: As in `translate`.
        """
        target = self._choose_target(to)
        return self.predictor.translate(batches, config, with_alignment=aligned, with_attention=attention, to=target)

    def force_decode(
        self, source: str, target: str, *, alpha: float = DecodingConfig.alpha, to: str = ""
    ) -> ForcedDecoding:
        """Score a given translation.

        Args:
            source: The text.
            target: The translation to score.
            alpha, to: The length penalty and the language of the target, as in `translate`.

        Returns:
            A `ForcedDecoding`: `hypothesis` with `score` and `token_scores`, and `attention`, a torch tensor of
            cross-attention weights (layers, heads, target tokens, source tokens).
        """
        check_option("alpha", alpha, LENGTH_PENALTIES)
        source_ids, target_ids = self._encode_sources([source], to)[0], self.task.tokenizers.target.encode(target)
        return next(self.predictor.force_decode([(source_ids, target_ids)], alpha))

    def learn_shortlist(
        self,
        data: str | Sequence[str],
        out: str | Path,
        *,
        columns: str | Sequence[str] = (),
        per_token: int = PER_TOKEN,
        common: int = COMMON,
    ) -> None:
        """Learn from pairs of texts which few tokens a translation may contain, and write that to a file.

        For `use_shortlist`. The model aligns the words of each pair; the tokens of aligned words are counted.

        Args:
            data: Two files of lines (["train.en", "train.fr"]), or tables ("train.tsv").
            out: The file to write.
            columns: The source and target columns of tables, as in `evaluate`.
            per_token: The target tokens kept for each source token, those most often aligned with it.
            common: The most frequent target tokens, which every translation may contain.
        """
        check_option("per-token", per_token, SHORTLIST_SIZES)
        check_option("common", common, SHORTLIST_SIZES)
        check_writable(Path(out))
        names = split_columns(columns) or self.config.data.columns
        pairs = track(read_pairs(split_data(data), names, skip_empty=True), "aligning")
        model = digest_model_files(self.path)
        shortlist = learn_shortlist(self.predictor, pairs, per_token=per_token, common=common, model=model)
        with convert_write_errors(Path(out)):
            shortlist.write(Path(out))

    def use_shortlist(self, path: str | Path | None) -> None:
        """Translate from now on with the tokens of a shortlist alone, on a CPU.

        Scores are then those among the tokens that a text permits. Forced decoding and `perplexity` know no shortlist.

        Args:
            path: A file that `learn_shortlist` wrote for this model; None: all tokens again.
        """
        shortlist = None
        if path is not None:
            if self.device.type != "cpu":
                raise InputError(f"{path}: a shortlist saves time on a CPU only; use the device cpu, or leave it out")
            tokenizers = self.task.tokenizers
            shortlist = Shortlist.read(Path(path), digest_model_files(self.path))
            shortlist.check_sizes(Path(path), len(tokenizers.source), len(tokenizers.target))
        self.predictor = replace(self.predictor, shortlist=shortlist)

    def look(
        self,
        text: str,
        target: str | None = None,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        to: str = "",
    ) -> Inspection:
        """Look inside the model while it translates a text.

        Args:
            text: The text.
            target: The translation the decoder reads; by default the best one that the search finds.
            beam, alpha, sample, temperature, top_k, top_p, seed: The search, as in `translate`; not with a target.
            to: The language to translate into, as in `translate`. Its token is the first of the source.

        Returns:
            An `Inspection`: `attention("cross")`, `effective_attention("encoder")`, `attribution(layer=3)` and others,
            each a torch tensor; `show()` in a notebook or terminal, `save("look.html")` anywhere.
        """
        tokenizers = self.task.tokenizers
        source = self._encode_sources([check_text(text)], to)[0]
        self.predictor.check_lengths([(0, source)], tokenizers.source)
        about: dict[str, object] = {"model": str(self.path), "text": text}
        about |= {"to": self._choose_target(to)} if self.task.directions.is_tagged else {}
        config = DecodingConfig(
            beam=beam,
            alpha=DecodingConfig.alpha if alpha is None else alpha,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
        if target is not None:
            given = {"beam": beam, "alpha": alpha, "sample": sample or None, "seed": seed or None}
            refuse_given(given, "a target is given, so nothing is searched")
            target_ids = tokenizers.target.encode(target)
            about |= {"target": target}
        else:
            best = self.predictor.generate([source], config)[0][0]
            target_ids = list(best.ids[:-1])
            about |= {"target": tokenizers.target.decode(target_ids), "score": best.score}
        return Inspection(self._build_look_target(source, target_ids), about)

    def evaluate(
        self,
        data: str | Sequence[str],
        *,
        columns: str | Sequence[str] = (),
        skip_empty: bool = False,
        lowercase: bool = False,
        beam: int | None = None,
        alpha: float = DecodingConfig.alpha,
        batch: int = DecodingConfig.batch,
        source_lang: str = "",
        target_lang: str = "",
    ) -> dict[str, Any]:
        """Score the model on parallel texts.

        Args:
            data: Two files of lines (["test.en", "test.fr"]), or tables ("test.tsv"); files that name their languages
                ("test.tsv:en=1,de=2,fr=3") are scored in every direction that the model has.
            columns: The source and target columns of tables, by header or number, as "en,fr" or ("1", "3"); by default
                those the model was trained on.
            skip_empty: Leave out pairs with an empty side, and count them, instead of refusing the file.
            lowercase: Compute BLEU and chrF on lower-cased text.
            beam, alpha, batch: The search, as in `translate`.
            source_lang, target_lang: The direction of the pairs, for a model of several.

        Returns:
            A dict with task, n (pairs), bleu, bleu_signature, chrf, chrf_signature, exact (the fraction of
            translations equal to their reference), perplexity and tokens; of several directions bleu, chrf and exact
            are means, and bleu_en-fr, ... are those of each.
        """
        groups = read_pairs_by_direction(
            split_data(data),
            split_columns(columns) or self.config.data.columns,
            self.task.directions,
            source_lang=source_lang,
            target_lang=target_lang or self.to,
            skip_empty=skip_empty,
        )
        config = DecodingConfig(beam=beam, alpha=alpha, batch=batch)
        scores = {each.direction: score_pairs(self.predictor, each, config, lowercase=lowercase) for each in groups}
        return {"task": self.task.name, **merge_scores(scores)}

    def _build_look_target(self, *sides_ids: TokenIds) -> LookTarget:
        """Build the forward pass of a source and a target; without a target, the decoder reads its start token only."""
        source, target = (*sides_ids, [])[:2]
        tokenizers, network = self.task.tokenizers, self.network
        self.predictor.check_pairs([(source, target)])
        batch = self.predictor.make_batch([(source, target)])

        def side(tokenizer: Tokenizer, ids: list[int], entrance: str) -> Side:
            return Side(tokenizer.display_tokens(ids), tokenizer.words(ids), entrance)

        sides = {
            "encoder": side(tokenizers.source, self.task.special_tokens.wrap_source(source), "source_embedding.out"),
            "decoder": side(tokenizers.target, self.task.special_tokens.wrap_target_in(target), "target_embedding.out"),
        }
        next_tokens = tuple(tokenizers.target.display_tokens(batch.target_out[0].tolist()))
        sides["decoder"] = replace(sides["decoder"], next_tokens=next_tokens)
        return LookTarget(
            network,
            sides,
            run_layers=lambda: network.hidden_states(batch.source, batch.target_in),
            head=network.logits,
            predicted_ids=batch.target_out[0],
        )
