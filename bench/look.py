"""The cost of looking inside, beside plain autograd, torch.func and Captum: SPEC 8.2 and 8.4.

    python bench/look.py                        on the CPU: 6 layers x 384, 64 tokens
    python bench/look.py --device cuda          BERT-base: 12 layers x 768, 64 tokens

Attribution: regard gives all layers, the peers the last layer alone. They take one backward pass for each output
number; a part of the outputs is measured and the time of all of them worked out from it (--share). The floor is the
time of the matrix products that linearised attribution needs, at the speed a large product reaches here. Captum is
measured where it is installed: pip install --no-deps captum.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import jacrev

from regard.look.compute.attribution import compute_attribution
from regard.look.compute.effective_attention import compact_head_values, effective_attention
from regard.look.compute.jvp import freeze_parameters, linearised_pushforward, record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.blocks import build_embedding, build_encoder_layer, initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.nn import EncoderStack, PackedPositions, make_mask, record
from regard.text.subwords import Word


class BareEncoder(nn.Module):
    """An encoder by itself, shaped like BERT."""

    def __init__(self, config: TransformerSeq2SeqConfig, vocabulary_size: int = 1000) -> None:
        super().__init__()
        self.embedding = build_embedding(config, vocabulary_size)
        self.encoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))

    def forward(self, ids: Tensor) -> Tensor:
        place = PackedPositions(torch.ones_like(ids), torch.arange(ids.shape[1], device=ids.device).expand_as(ids))
        encoded: Tensor = self.encoder(self.embedding(ids, place.position), make_mask(place, place))
        return encoded


def build_look_target(n_layers: int, d_model: int, n_tokens: int, device: str) -> LookTarget:
    shape = {"preset": "base", "d_model": d_model, "d_ff": 4 * d_model, "n_heads": 12, "dropout": 0.0}
    config = TransformerSeq2SeqConfig(
        **apply_preset({**shape, "n_layers": n_layers, "n_decoder_layers": 1, "activation": "gelu"})
    )
    model = BareEncoder(config)
    initialise_weights(model, torch.Generator().manual_seed(0))
    model.eval().to(device)
    ids = torch.randint(1000, (1, n_tokens), generator=torch.Generator().manual_seed(1)).to(device)
    names = [str(number) for number in range(n_tokens)]
    side = Side(names, [Word(name, (place,)) for place, name in enumerate(names)], "embedding.out")
    return LookTarget(model, {"encoder": side}, lambda: model(ids), lambda hidden: hidden, ids[0])


def measure_seconds(function: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure_matmul_throughput(device: str) -> float:
    """Multiplications and additions a second in a large product, as attribution runs it there."""
    size, dtype = (8192, torch.float16) if device == "cuda" else (2048, torch.float32)
    one = torch.randn(size, size, device=device, dtype=dtype)
    measure_seconds(lambda: one @ one, device)
    return max(2 * size**3 / measure_seconds(lambda: one @ one, device) for _ in range(5))


def build_last_layer(target: LookTarget) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The output of the last layer as a function of what enters; attention explicit, as the peers need it."""
    x = record_inputs(target)["encoder"]

    def run(inputs: Tensor) -> Tensor:
        with replace_inputs(target, {"encoder": inputs}), record(target.model, "*.weights"):
            return target.run_layers()[0]

    return run, x


def attribute_by_autograd(target: LookTarget, n_outputs: int) -> None:
    run, x = build_last_layer(target)
    x = x.clone().requires_grad_()
    out = run(x).flatten()
    for number in range(n_outputs):
        torch.autograd.grad(out[number], x, retain_graph=True)


def attribute_by_jacrev(target: LookTarget, n_outputs: int) -> None:
    run, x = build_last_layer(target)
    jacrev(lambda inputs: run(inputs).flatten()[:n_outputs], chunk_size=64)(x)


def attribute_by_captum(target: LookTarget, n_outputs: int) -> None:
    from captum.attr import Saliency

    run, x = build_last_layer(target)
    saliency = Saliency(lambda inputs: run(inputs).flatten()[None])
    for number in range(n_outputs):
        saliency.attribute(x.clone().requires_grad_(), target=number, abs=False)


def print_attribution_times(target: LookTarget, fraction: float, device: str) -> None:
    n_tokens, width = record_inputs(target)["encoder"].shape[1:]
    n_layers, n_outputs = target.n_layers("encoder"), n_tokens * width
    work = n_outputs * n_tokens * n_layers * 2 * (5 * width**2 + 4 * n_tokens * width)
    floor = work / measure_matmul_throughput(device)
    print(f"attribution, {n_layers} layers x {width}, {n_tokens} tokens; floor {floor:.2f} s ({work / 1e12:.0f} TFLOP)")
    for _ in range(3 if device == "cuda" else 1):  # the first compiles a kernel there
        start = time.perf_counter()
        exact = compute_attribution(target, "encoder")
        float(exact.contribution.sum())
        took = time.perf_counter() - start
        print(f"  regard, all layers, exact         {took:9.2f} s   {took / floor:.2f} of the floor", flush=True)
    dtype = torch.float16 if device == "cuda" else torch.float32
    found = measure_seconds(lambda: linearised_pushforward(target, "encoder", dtype), device)
    print(f"    of that, the matrices           {found:9.2f} s")
    if device == "cuda":
        some = {"encoder": torch.randn(64, n_tokens, width, device=device)}
        half, single = (linearised_pushforward(target, "encoder", each)(some) for each in (dtype, torch.float32))
        off = ((half - single).abs() / single).flatten()
        print(
            f"    half precision off by           {float(off.mean()):9.2e}     at most {float(off.max()):.1e} (squared)"
        )
    for count in (8, 16):
        estimate = compute_attribution(target, "encoder", estimate=count)
        part = measure_seconds(lambda count=count: compute_attribution(target, "encoder", estimate=count), device)
        off = ((estimate.contribution - exact.contribution).abs() / exact.contribution).mean()
        said = (estimate.error / estimate.contribution).mean() if estimate.error is not None else 0.0
        print(
            f"  regard, all layers, estimate {count:<3}   {part:9.2f} s   {part / took:.3f} of exact; off by "
            f"{float(off):.2%} (standard error says {float(said):.2%})",
            flush=True,
        )
    measured = max(1, round(fraction * n_outputs))
    peers = {
        "torch.func.jacrev": attribute_by_jacrev,
        "autograd, output by output": attribute_by_autograd,
        "Captum saliency": attribute_by_captum,
    }
    with freeze_parameters(target.model):
        for name, peer in peers.items():
            try:
                peer(target, 1)
            except ImportError:
                print(f"  {name}: not installed")
                continue
            few = measured if peer is attribute_by_jacrev else max(1, measured // 8)
            whole = measure_seconds(lambda peer=peer, few=few: peer(target, few), device) * n_outputs / few
            print(f"  {name + ', last layer':<34}{whole:9.1f} s   from {few} of {n_outputs} outputs", flush=True)


def effective_attention_by_svd(weights: Tensor, transformed_values: Tensor) -> Tensor:
    """The definition, head by head: the projection onto the left null space by a full SVD, taken away."""
    out = torch.empty_like(weights, dtype=torch.float64)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in weights.shape[:2])).tolist():
        t = transformed_values[tuple(place)].double()
        left, singular, _ = torch.linalg.svd(t)
        rank = int((singular > torch.finfo(torch.float32).eps * max(t.shape) * singular[0]).sum())
        null = left[:, rank:]
        row = weights[tuple(place)].double()
        out[tuple(place)] = row - row @ null @ null.mT
    return out


def print_effective_attention_times(target: LookTarget, device: str) -> None:
    seen = Inspection(target)
    weights, n_tokens = seen.attention(), len(target.sides["encoder"].tokens)
    values = [(module, seen._recorded[0][f"{name}.value"][0]) for name, module in target.attentions("encoder").items()]
    carried = torch.stack([value.double() @ _output_weight_by_head(module).double().mT for module, value in values])
    ways = {
        "regard": lambda: effective_attention(
            weights,
            torch.stack([compact_head_values(value, _output_weight_by_head(module)) for module, value in values]),
            seen.attention_mask(),
            carried.shape[-1],
        )[0],
        "full SVD of V W_O, head by head": lambda: effective_attention_by_svd(weights, carried),
    }
    apart = (ways["regard"]() - ways["full SVD of V W_O, head by head"]()).abs().max()
    print(f"effective attention, all heads, {n_tokens} tokens; largest difference {float(apart):.1e}")
    for name, way in ways.items():
        print(f"  {name:<34}{min(measure_seconds(way, device) for _ in range(3)):9.3f} s", flush=True)


def _output_weight_by_head(module: nn.Module) -> Tensor:
    weight: Tensor = module.output.weight.detach()  # type: ignore[union-attr, union-attr]
    return weight.unflatten(1, (module.n_heads, module.d_value)).transpose(0, 1)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--share", type=float, default=1 / 64, help="of the outputs that the peers are measured on")
    given = parser.parse_args()
    shape = (12, 768) if given.device == "cuda" else (6, 384)
    looked = build_look_target(*shape, given.tokens, given.device)
    print_attribution_times(looked, given.share, given.device)
    print_effective_attention_times(looked, given.device)
    print_effective_attention_times(build_look_target(*shape, 4 * given.tokens, given.device), given.device)


if __name__ == "__main__":
    main()
