"""The check of an export to CTranslate2: the engine runs it on sample inputs beside regard.

    translator       log-probabilities of given targets, and greedy translations
    language model   logits, and greedy continuations
    encoder          hidden states and the vector of the pooler

Beams are not compared: the length penalty there is ``length^alpha``, here ``((5 + length) / 6)^alpha``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batches import sentences_to_rows
from regard.export.comparison import Comparison, first_difference
from regard.export.encoder_outputs import encoder_outputs, language_model_outputs
from regard.export.source_model import Ids, SourceModel
from regard.generate import DecodingConfig
from regard.predict.translation import TranslationPredictor
from regard.text.special_tokens import SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer

N_GREEDY_TOKENS = 40
"""Tokens of greedy translations that are compared: more than the distances of relative positions."""

N_PROMPTS, N_CONTINUED_TOKENS = 3, 20


def compare_ctranslate2(directory: Path, source: SourceModel, comparison: Comparison) -> None:
    """Compare a model of any kind."""
    if source.is_translator:
        compare_translator(directory, source, comparison)
    elif source.is_language_model:
        compare_language_model(directory, source, comparison)
    else:
        compare_encoder(directory, source, comparison)


def compare_translator(directory: Path, source: SourceModel, comparison: Comparison) -> None:
    """Compare token scores of given targets, and greedy translations."""
    import ctranslate2

    task: Any = source.task
    predictor: TranslationPredictor = task.make_predictor(source.network, torch.device("cpu"))
    special, target = task.special_tokens, task.tokenizers.target
    prefix = _names(target, special.prefix_ids)
    engine = ctranslate2.Translator(str(directory), device="cpu", intra_threads=torch.get_num_threads())
    pairs = source.sample_pairs()
    sources = [_names(task.tokenizers.source, special.wrap_source(ids)) for ids, _ in pairs]
    ours = [np.array(each.hypothesis.token_scores) for each in predictor.force_decode(pairs)]
    scored = engine.score_batch(sources, [prefix + _names(target, ids) for _, ids in pairs], max_input_length=0)
    comparison.check_values("log-probabilities", ours, [np.array(each.log_probs[len(prefix) :]) for each in scored])
    most = min(N_GREEDY_TOKENS, source.network.config.n_positions - len(prefix))
    written = engine.translate_batch(
        sources,
        beam_size=1,
        target_prefix=[prefix] * len(sources) if prefix else None,
        max_input_length=0,
        max_decoding_length=most + len(prefix),
        min_decoding_length=0,
        suppress_sequences=[[target.id_to_token(index)] for index in special.decoding_tokens.suppressed_ids] or None,
    )
    best = predictor.generate([ids for ids, _ in pairs], DecodingConfig(beam=1))
    for (ids, _), own, result in zip(pairs, best, written, strict=True):
        n_chosen = len(own[0].ids) - own[0].is_truncated  # at its limit, the last token is a forced end
        here = own[0].ids[: min(most, n_chosen)]
        theirs = [target.token_to_id(token) for token in result.hypotheses[0][len(prefix) :]]
        _check_translation(predictor, ids, here, [*theirs, special.eos_id][: len(here)], comparison)


def _check_translation(
    predictor: TranslationPredictor, source: Ids, ours: Sequence[int], theirs: Sequence[int], comparison: Comparison
) -> None:
    index = first_difference(ours, theirs)
    gap = None
    if index is not None:
        batch = predictor.make_batch([(source, ours[:index])])
        with torch.inference_mode():
            log_probs = predictor.model(batch.source, batch.target_in)[0, -1].log_softmax(-1)
        gap = _score_gap(log_probs, ours, theirs, index)
    comparison.check_tokens("greedy translation", ours, theirs, gap)


def _score_gap(log_probs: torch.Tensor, ours: Sequence[int], theirs: Sequence[int], index: int) -> float:
    """Return the difference of the scores of two tokens; infinity if one sequence has none."""
    if index >= min(len(ours), len(theirs)):
        return float("inf")
    return float((log_probs[ours[index]] - log_probs[theirs[index]]).abs())


def compare_language_model(directory: Path, source: SourceModel, comparison: Comparison) -> None:
    """Compare logits, and greedy continuations of the first samples."""
    import ctranslate2

    task: Any = source.task
    tokenizer: Tokenizer = task.tokenizers.source
    engine = ctranslate2.Generator(str(directory), device="cpu", intra_threads=torch.get_num_threads())
    texts = source.sample_texts(tokenizer, 0)
    logits = np.array(engine.forward_batch(texts))
    ours = language_model_outputs(source.network, texts)["logits"]
    comparison.check_values("logits", ours, [row[: len(ids)] for row, ids in zip(logits, texts, strict=True)])
    longest_prompt = source.network.config.n_positions - N_CONTINUED_TOKENS
    prompts = [ids for ids in texts if len(ids) <= longest_prompt][:N_PROMPTS]
    for prompt in prompts:  # one at a time: in a batch, the engine takes a part of the longer ones for its own text
        written = engine.generate_batch(
            [_names(tokenizer, prompt)], sampling_topk=1, max_length=N_CONTINUED_TOKENS, include_prompt_in_result=False
        )
        theirs = [*written[0].sequences_ids[0], task.end_id][:N_CONTINUED_TOKENS]
        check_continuation(source, prompt, theirs, comparison)


def check_continuation(source: SourceModel, prompt: Ids, theirs: Ids, comparison: Comparison) -> None:
    """Compare a greedy continuation by the engine with the most likely tokens here, given its own prefix."""
    rows = sentences_to_rows([[*prompt, *theirs]], pad_id=0)
    with torch.inference_mode():
        log_probs = source.network(rows)[0].log_softmax(-1)
    predicted = log_probs[len(prompt) - 1 : -1]
    ours = predicted.argmax(-1).tolist()
    index = first_difference(ours, theirs)
    gap = None if index is None else _score_gap(predicted[index], ours, theirs, index)
    comparison.check_tokens("greedy continuation", ours, theirs, gap)


def compare_encoder(directory: Path, source: SourceModel, comparison: Comparison) -> None:
    """Compare hidden states and, where there is a pooler, its vectors."""
    import ctranslate2

    inputs = source.sample_inputs()
    ours = encoder_outputs(
        source.network, inputs, SpecialTokenTemplate.from_tokenizer(source.task.tokenizers.source).pad_id
    )
    engine = ctranslate2.Encoder(str(directory), device="cpu", intra_threads=torch.get_num_threads())
    ids = [each.ids for each in inputs]
    types = [[int(i >= each.token_type_boundary) for i in range(len(each.ids))] for each in inputs]
    has_types = source.network.config.n_parts > 1
    result = engine.forward_batch(ids, token_type_ids=types) if has_types else engine.forward_batch(ids)
    hidden = np.array(result.last_hidden_state)
    comparison.check_values(
        "hidden states", ours["last_hidden_state"], [row[: len(each)] for row, each in zip(hidden, ids, strict=True)]
    )
    if "pooler_output" in ours:
        comparison.check_values("pooler output", ours["pooler_output"], np.array(result.pooler_output))


def _names(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [tokenizer.id_to_token(index) or f"<no token {index}>" for index in ids]
