"""Time of attribution and effective attention, beside plain autograd, torch.func and Captum.

    python bench/look.py                        on the CPU: 6 layers x 384, 64 tokens
    python bench/look.py --device cuda          BERT-base: 12 layers x 768, 64 tokens

Attribution is the contribution of each input token to each position by the Jacobian (Brunner et al. 2020, section 5).
regard computes all layers, the peers the last layer alone. They take one backward pass for each output element: a
fraction of the elements is measured and scaled up (--fraction). The floor is the time of the matrix multiplications
that linearised attribution needs, at the throughput of a large one on this machine. Captum is measured where it is
installed: pip install --no-deps captum. Effective attention (Brunner et al. 2020, section 3) is compared with its
definition.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import harness
import torch
from harness import measure_seconds
from torch import Tensor, nn
from torch.func import jacrev

from regard.look.compute.attribution import TokenAttribution, compute_attribution
from regard.look.compute.effective_attention import compact_head_values, effective_attention
from regard.look.compute.jvp import linearised_pushforward, record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.blocks import build_embedding, build_encoder_layer, initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.nn import EncoderStack, PackedPositions, make_mask
from regard.text.subwords import Word


class BareEncoder(nn.Module):
    """A Transformer encoder without a head, shaped like BERT."""

    def __init__(self, config: TransformerSeq2SeqConfig, vocabulary_size: int = 1000) -> None:
        super().__init__()
        self.embedding = build_embedding(config, vocabulary_size)
        self.encoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        layout = PackedPositions(torch.ones_like(ids), positions)
        encoded: Tensor = self.encoder(self.embedding(ids, layout.position), make_mask(layout, layout))
        return encoded


def build_look_target(n_layers: int, d_model: int, n_tokens: int, device: str) -> LookTarget:
    """Return an encoder with random weights and a text of random tokens."""
    shape = {"preset": "base", "d_model": d_model, "d_ff": 4 * d_model, "n_heads": 12, "dropout": 0.0}
    config = TransformerSeq2SeqConfig(
        **apply_preset({**shape, "n_layers": n_layers, "n_decoder_layers": 1, "activation": "gelu"})
    )
    model = BareEncoder(config)
    initialise_weights(model, torch.Generator().manual_seed(0))
    model.eval().requires_grad_(False).to(device)
    ids = torch.randint(1000, (1, n_tokens), generator=torch.Generator().manual_seed(1)).to(device)
    names = [str(position) for position in range(n_tokens)]
    side = Side(names, [Word(name, (position,)) for position, name in enumerate(names)], "embedding.out")
    return LookTarget(model, {"encoder": side}, lambda: model(ids), lambda hidden: hidden, ids[0])


def measure_matmul_throughput(device: str, size: int) -> float:
    """Return the FLOP/s of a large matrix multiplication, in the precision that attribution uses on the device."""
    matrix = torch.randn(size, size, device=device, dtype=_attribution_dtype(device))
    measure_seconds(lambda: matrix @ matrix, device)
    return max(2 * size**3 / measure_seconds(lambda: matrix @ matrix, device) for _ in range(5))


def _attribution_dtype(device: str) -> torch.dtype:
    return torch.float16 if device == "cuda" else torch.float32


def build_last_layer(target: LookTarget) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the last layer as a function of the embeddings, with materialised attention, and the embeddings."""
    x = record_inputs(target)["encoder"]

    def run(inputs: Tensor) -> Tensor:
        with replace_inputs(target, {"encoder": inputs}):
            return target.run_layers()[0]

    return run, x


def attribute_by_autograd(target: LookTarget, n_outputs: int) -> None:
    run, x = build_last_layer(target)
    x = x.clone().requires_grad_()
    out = run(x).flatten()
    for index in range(n_outputs):
        torch.autograd.grad(out[index], x, retain_graph=True)


def attribute_by_jacrev(target: LookTarget, n_outputs: int) -> None:
    run, x = build_last_layer(target)
    jacrev(lambda inputs: run(inputs).flatten()[:n_outputs], chunk_size=64)(x)


def attribute_by_captum(target: LookTarget, n_outputs: int) -> None:
    from captum.attr import Saliency

    run, x = build_last_layer(target)
    saliency = Saliency(lambda inputs: run(inputs).flatten()[None])
    for index in range(n_outputs):
        saliency.attribute(x.clone().requires_grad_(), target=index, abs=False)


PEERS = {
    "torch.func.jacrev": ("torch", attribute_by_jacrev),
    "autograd, one output at a time": ("torch", attribute_by_autograd),
    "Captum saliency": ("captum", attribute_by_captum),
}
"""Package and function of each peer."""


def print_attribution_times(target: LookTarget, options: argparse.Namespace) -> None:
    """Print the time of exact and estimated attribution, and of the peers."""
    device = options.device
    n_tokens, width = record_inputs(target)["encoder"].shape[1:]
    n_layers = target.n_layers("encoder")
    flops = n_tokens * width * n_tokens * n_layers * 2 * (5 * width**2 + 4 * n_tokens * width)
    floor = flops / measure_matmul_throughput(device, options.matmul)
    print(
        f"attribution, {n_layers} layers x {width}, {n_tokens} tokens; floor {floor:.2f} s ({flops / 1e12:.2g} TFLOP)"
    )
    for _ in range(3 if device == "cuda" else 1):  # the first compiles a kernel there
        start = time.perf_counter()
        exact = compute_attribution(target, "encoder")
        float(exact.contribution.sum())
        seconds = time.perf_counter() - start
        print(f"  regard, all layers, exact         {seconds:9.2f} s   {seconds / floor:.2f} of the floor", flush=True)
    pushforward = measure_seconds(lambda: linearised_pushforward(target, "encoder", _attribution_dtype(device)), device)
    print(f"    of that, building the matrices  {pushforward:9.2f} s")
    if device == "cuda":
        print_half_precision_error(target, n_tokens, width)
    for n_probes in (8, 16):
        print_estimate(target, n_probes, exact, seconds, device)
    print_peer_times(target, options.fraction, n_tokens * width, device)


def print_half_precision_error(target: LookTarget, n_tokens: int, width: int) -> None:
    """Print the relative error of squared norms in half precision against single precision."""
    tangents = {"encoder": torch.randn(64, n_tokens, width, device="cuda")}
    half, single = (
        linearised_pushforward(target, "encoder", dtype)(tangents) for dtype in (torch.float16, torch.float32)
    )
    error = ((half - single).abs() / single).flatten()
    print(f"    relative error of half precision, squared norms: mean {error.mean():.2e}, maximum {error.max():.1e}")


def print_estimate(
    target: LookTarget, n_probes: int, exact: TokenAttribution, exact_seconds: float, device: str
) -> None:
    """Print time and error of the estimate from random probes."""
    estimate = compute_attribution(target, "encoder", estimate=n_probes)
    seconds = measure_seconds(lambda: compute_attribution(target, "encoder", estimate=n_probes), device)
    error = ((estimate.contribution - exact.contribution).abs() / exact.contribution).mean()
    standard_error = (estimate.error / estimate.contribution).mean() if estimate.error is not None else 0.0
    print(
        f"  regard, all layers, {n_probes:>2} probes     {seconds:9.2f} s   {seconds / exact_seconds:.3f} of exact; "
        f"relative error {float(error):.2%} (standard error {float(standard_error):.2%})",
        flush=True,
    )


def print_peer_times(target: LookTarget, fraction: float, n_outputs: int, device: str) -> None:
    """Print the time of each peer for all outputs of the last layer, scaled up from a fraction of them."""
    n_measured = max(1, round(fraction * n_outputs))
    for name, (package, attribute) in PEERS.items():
        if not harness.is_installed(package):
            continue
        attribute(target, 1)  # warm-up
        n_timed = n_measured if attribute is attribute_by_jacrev else max(1, n_measured // 8)
        seconds = measure_seconds(partial(attribute, target, n_timed), device) * n_outputs / n_timed
        print(f"  {name + ', last layer':<42}{seconds:9.1f} s   from {n_timed} of {n_outputs} outputs", flush=True)


def effective_attention_by_svd(weights: Tensor, transformed_values: Tensor) -> Tensor:
    """Subtract the projection onto the left null space of V W_O, head by head, by a full SVD: the definition."""
    out = torch.empty_like(weights, dtype=torch.float64)
    for layer, head in torch.cartesian_prod(*(torch.arange(size) for size in weights.shape[:2])).tolist():
        t = transformed_values[layer, head].double()
        left, singular, _ = torch.linalg.svd(t)
        rank = int((singular > torch.finfo(torch.float32).eps * max(t.shape) * singular[0]).sum())
        null = left[:, rank:]
        attention = weights[layer, head].double()
        out[layer, head] = attention - attention @ null @ null.mT
    return out


def print_effective_attention_times(target: LookTarget, device: str) -> None:
    """Print the time of effective attention and of its definition, and their largest difference."""
    inspection = Inspection(target)
    weights, n_tokens = inspection.attention(), len(target.sides["encoder"].tokens)
    values = [
        (module, inspection._recorded[0][f"{name}.value"][0]) for name, module in target.attentions("encoder").items()
    ]
    transformed = torch.stack([value.double() @ _output_weight_by_head(module).double().mT for module, value in values])

    def compute() -> Tensor:
        compact = torch.stack([compact_head_values(value, _output_weight_by_head(module)) for module, value in values])
        return effective_attention(weights, compact, inspection.attention_mask(), transformed.shape[-1])[0]

    implementations = {
        "regard": compute,
        "full SVD of V W_O, head by head": lambda: effective_attention_by_svd(weights, transformed),
    }
    ours, definition = (implementation() for implementation in implementations.values())
    difference = float((ours - definition).abs().max())
    print(f"effective attention, all heads, {n_tokens} tokens; largest difference {difference:.1e}")
    for name, implementation in implementations.items():
        seconds = min(measure_seconds(implementation, device) for _ in range(3))
        print(f"  {name:<34}{seconds:9.3f} s", flush=True)


def _output_weight_by_head(module: nn.Module) -> Tensor:
    weight: Tensor = module.output.weight.detach()  # type: ignore[union-attr, union-attr]
    return weight.unflatten(1, (module.n_heads, module.d_value)).transpose(0, 1)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke={"tokens": 4, "layers": 1, "width": 48, "matmul": 128})
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--layers", type=int, help="12 on a GPU, 6 on a CPU")
    parser.add_argument("--width", type=int, help="a multiple of 12, the number of heads; 768 on a GPU, 384 on a CPU")
    parser.add_argument("--fraction", type=float, default=1 / 64, help="fraction of the outputs the peers are timed on")
    parser.add_argument("--matmul", type=int, help="size of the matrices that give the floor")
    options = parser.parse(arguments)
    on_gpu = options.device == "cuda"
    options.matmul = options.matmul or (8192 if on_gpu else 2048)
    shape = (options.layers or (12 if on_gpu else 6), options.width or (768 if on_gpu else 384))
    target = build_look_target(*shape, options.tokens, options.device)
    print_attribution_times(target, options)
    print_effective_attention_times(target, options.device)
    print_effective_attention_times(build_look_target(*shape, 4 * options.tokens, options.device), options.device)


if __name__ == "__main__":
    harness.run_script(main)
