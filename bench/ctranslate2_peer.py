"""CTranslate2 as a peer of the decoding benchmark: the weights of a translation model of regard in its engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.models.seq2seq import TransformerSeq2Seq
from regard.text.tokenizer import EOS, PAD, SOS

TokenDecoder = Callable[[Sequence[Sequence[int]], int, int], None]
"""Decodes sentences in batches of a size, with a beam of some width."""


def save_converted(model: TransformerSeq2Seq, n_tokens: int, directory: Path) -> None:
    """Write a post-norm model with sinusoidal positions and one vocabulary as CTranslate2 reads it, in float32."""
    import ctranslate2

    config = model.config
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config.n_layers, config.n_decoder_layers), config.n_heads, pre_norm=False
    )
    words = _numbers(model.target_embedding.tokens.weight)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = words
    for spec_layer, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _fill_attention(spec_layer.self_attention, layer.attention, layer.attention_residual.norm)
        _fill_feed_forward(spec_layer.ffn, layer)
    for spec_layer, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        _fill_attention(spec_layer.self_attention, layer.attention, layer.attention_residual.norm)
        norm, widths = layer.cross_attention_residual.norm, layer.cross_attention.qkv_widths
        _fill_attention(spec_layer.attention, layer.cross_attention, norm, (widths[0], sum(widths[1:])))
        _fill_feed_forward(spec_layer.ffn, layer)
    tokens = [f"t{number}" for number in range(n_tokens)]
    tokens[PAD], tokens[SOS], tokens[EOS] = "<unk>", "<s>", "</s>"
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization="float32")
    directory.mkdir()
    spec.save(str(directory))


def _fill_attention(spec: Any, attention: Any, norm: nn.Module, widths: Sequence[int] = ()) -> None:
    """Fill in the projections, stacked or in blocks of these widths, and the output projection."""
    widths = widths or (sum(attention.qkv_widths),)
    weights, biases = (part.split(widths) for part in (attention.projection.weight, attention.projection.bias))
    for linear, weight, bias in zip(spec.linear[:-1], weights, biases, strict=True):
        linear.weight, linear.bias = _numbers(weight), _numbers(bias)
    _fill_linear(spec.linear[-1], attention.output)
    _fill_norm(spec.layer_norm, norm)


def _fill_feed_forward(spec: Any, layer: Any) -> None:
    _fill_linear(spec.linear_0, layer.feed_forward.up_projection)
    _fill_linear(spec.linear_1, layer.feed_forward.down_projection)
    _fill_norm(spec.layer_norm, layer.feed_forward_residual.norm)


def _fill_linear(spec: Any, linear: Any) -> None:
    spec.weight, spec.bias = _numbers(linear.weight), _numbers(linear.bias)


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _numbers(weight: Tensor) -> Any:
    return weight.detach().float().numpy().copy()


def build_ctranslate2_decoder(
    directory: Path, compute_type: str, n_threads: int, n_workers: int, n_tokens: int
) -> TokenDecoder:
    """Return CTranslate2's search with `n_workers` that share the threads, writing exactly `n_tokens`."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(directory), compute_type=compute_type, inter_threads=n_workers, intra_threads=n_threads // n_workers
    )

    def decode(sources: Sequence[Sequence[int]], batch_size: int, beam: int) -> None:
        texts = [[f"t{token}" for token in ids] for ids in sources]
        results = translator.translate_batch(
            texts, beam_size=beam, max_batch_size=batch_size, batch_type="examples",
            min_decoding_length=n_tokens, max_decoding_length=n_tokens,
        )  # fmt: skip
        assert all(len(result.hypotheses[0]) == n_tokens for result in results)

    return decode
