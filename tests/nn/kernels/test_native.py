"""Kernels in C against plain PyTorch, each operation and whole decoding; and the library they are compiled into."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import torch
from attention_reference import packed
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.generate import BeamSearchConfig, ContinuousBatcher, EagerBatch, SpecialTokens
from regard.generate.beam import Beams, BeamSearch
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import kernels, record
from regard.nn.kernels import native_library, plain, plain_beam_update
from regard.nn.quantization import quantize

CPU, EOS = torch.device("cpu"), 2
MARKS = SpecialTokens(1, EOS, suppressed_ids=(0, 1))
WIDTHS = {"preset": "tiny", "d_model": 32, "n_heads": 2, "d_ff": 48, "n_layers": 2, "dropout": 0.0}


def kernel(name: str) -> ModuleType:
    """Return a kernel's module; skip where it was deleted, or nothing can be compiled."""
    if native_library.LIBRARY.load() is None:
        pytest.skip(native_library.LIBRARY.problem)
    return pytest.importorskip(f"regard.nn.kernels.native_{name}")


@pytest.fixture(autouse=True)
def without_gradients() -> object:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize(("rows", "width", "out"), [(1, 16, 1), (2, 32, 7), (5, 512, 33), (130, 64, 40), (3, 2048, 16)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_product_is_that_of_torch_and_a_row_the_same_beside_any_others(rows, width, out, biased):
    linear = kernel("linear")
    x, weight, bias = torch.randn(rows, width), torch.randn(out, width), torch.randn(out) if biased else None
    found = linear.linear(x, weight, bias)
    exact = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert_close(found.double(), exact, rtol=1e-5, atol=1e-6 * width)
    alone = torch.cat([linear.linear(row[None], weight, bias) for row in x])
    assert_close(found, alone, rtol=0, atol=0)


def test_a_product_is_at_least_as_exact_as_that_of_torch():
    linear = kernel("linear")
    x, weight = torch.randn(64, 2048), torch.randn(64, 2048)
    exact = x.double() @ weight.double().T
    errors = [(each - exact).norm() for each in (linear.linear(x, weight, None), x @ weight.T)]
    assert errors[0] <= 1.2 * errors[1]


def test_products_that_do_not_fit_are_left_alone():
    linear = kernel("linear")
    weight = torch.randn(8, 64)
    assert linear.supports(torch.randn(2, 64), weight, None)
    assert not linear.supports(torch.randn(2, 13), torch.randn(8, 13), None)
    assert not linear.supports(torch.randn(2, 64).double(), weight.double(), None)
    assert not linear.supports(torch.randn(2, 64), torch.randn(64, 8).T, None)
    with torch.inference_mode(False), torch.enable_grad():
        assert not linear.supports(torch.randn(2, 64), torch.randn(8, 64), None)


@pytest.mark.parametrize(("vocabulary", "n"), [(3, 8), (9, 8), (64, 1), (1000, 8), (1003, 5), (32000, 2)])
def test_the_best_tokens_are_those_of_plain_pytorch(vocabulary, n):
    top = kernel("top_log_probs").top_log_probs
    logits, suppressed = torch.randn(5, vocabulary) * 4, torch.tensor([0, 1])
    before = logits.clone()
    score, token, end = top(logits, n, EOS, suppressed)
    assert_close(logits, before, rtol=0, atol=0)
    wanted = plain.top_log_probs(logits, n, EOS, suppressed)
    possible = wanted[0] > -torch.inf
    assert_close(score, wanted[0])
    assert_close(token * possible, wanted[1] * possible)
    assert_close(end, wanted[2])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_not_numbers_give_no_numbers(bad):
    logits = torch.randn(3, 40)
    logits[1, 17] = bad
    score, _, end = kernel("top_log_probs").top_log_probs(logits, 4, EOS, torch.tensor([0]))
    assert score.isfinite().all(1).tolist() == end.isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("width", "vocabulary", "bonus"), [(0, 9, 0.0), (1, 9, 0.0), (3, 5, 0.0), (4, 40, 3.0), (5, 7, -2.0)]
)
def test_the_update_of_beams_is_the_plain_one(width, vocabulary, bonus):
    module, limits = kernel("advance_beams"), [1, 2, 5, 7]
    config = BeamSearchConfig.beam(MARKS, width, 0.6) if width else BeamSearchConfig.greedy(MARKS, 0.6)
    search = BeamSearch(config, max(limits), CPU)
    one, other = (Beams.start(torch.tensor(limits), config.beam_width, 1, max(limits)) for _ in range(2))
    for step in range(max(limits)):
        logits = torch.randn(len(limits) * (config.beam_width if step else 1), vocabulary) * 2
        logits[:, EOS] += bonus
        best = plain.top_log_probs(logits, config.n_candidates, EOS, search.suppressed)
        inputs = (*best, search.length_penalties, EOS, config.n_candidates)
        assert module.supports(one, *inputs)
        was_done = one.done.clone()
        parents = module.advance_beams(one, *inputs), plain_beam_update.advance_beams(other, *inputs)
        possible = (one.cum_log_prob > -torch.inf) & ~was_done[:, None]
        assert_close(parents[0] * possible, parents[1] * possible)
        for field in fields(Beams):
            found, wanted = getattr(one, field.name), getattr(other, field.name)
            compared = found.dim() == 2 and not field.name.startswith("finished")
            mask = possible if compared else torch.ones((), dtype=torch.bool)
            if found.dim() < 3 and not (field.name.startswith("finished_") and field.name != "finished_score"):
                assert_close(torch.where(mask, found, 0), torch.where(mask, wanted, 0))
    assert one.done.all()


@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_packed_rows_is_that_of_plain_pytorch(causal):
    module = kernel("packed_attention")
    qkv, mask = torch.randn(2, 40, 3 * 64), packed(2, 40, CPU, causal=causal)
    found = module.packed_self_attention(qkv, mask, 2)
    assert_close(found, plain.packed_self_attention(qkv, mask, 2))


def build(**options: object) -> TransformerSeq2Seq:
    model = TransformerSeq2Seq(TransformerSeq2SeqConfig(**apply_preset({**WIDTHS, **options})), 60, 60, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(3))
    return model.eval()


def decode(model: TransformerSeq2Seq, beam: int, n_slots: int = 3) -> list[tuple[tuple[int, ...], float]]:
    """Decode eleven sentences of different lengths, three at a time, others joining as some are done."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 9, (11,), generator=generator).tolist()
    sources = [torch.randint(3, 60, (n,), generator=generator).tolist() for n in lengths]
    config = BeamSearchConfig.beam(MARKS, beam, 0.6, 1) if beam > 1 else BeamSearchConfig.greedy(MARKS, 0.6)
    batch = EagerBatch(model.step, config, CPU)

    def start(chosen):
        return model.start(sentences_to_rows([[*ids, EOS] for ids in chosen], pad_id=0))

    batcher = ContinuousBatcher(start, lambda *_: batch, n_slots)
    handles, found = batcher.submit(sources, [n + 40 for n in lengths]), {}
    while not batcher.is_idle:
        batcher.step()
        found.update(batcher.take_finished())
    return [(found[handle][0].ids, found[handle][0].score) for handle in handles]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "pre", "activation": "gelu"},
        {"activation": "silu", "d_key": 16, "d_value": 32},
        {"activation": "gelu-tanh", "positions": "learned"},
    ],
)
def test_decoding_is_that_of_plain_pytorch(options, beam, used):
    kernel("decoder_layers")
    model = build(**options)
    found = decode(model, beam)
    assert "native_decoder_layers" in used
    with kernels.disabled():
        wanted = decode(model, beam)
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    assert_close(torch.tensor([score for _, score in found]), torch.tensor([score for _, score in wanted]))


@pytest.mark.parametrize("beam", [1, 3])
def test_decoding_in_int8_does_not_depend_on_the_batch(beam, used):
    kernel("decoder_layers")
    if not kernel("int8_linear").available(CPU, torch.float32):
        pytest.skip("this processor has no products of int8")
    model = build()
    quantize(model)
    alone = decode(model, beam, n_slots=1)
    assert decode(model, beam, n_slots=4) == alone
    assert "native_decoder_layers" in used


@pytest.mark.parametrize("options", [{"positions": "rotary"}, {"activation": "gated-silu"}, {"positions": "relative"}])
def test_other_layers_are_left_to_pytorch(options, used):
    decode(build(**options), 2)
    assert "native_decoder_layers" not in used


def test_a_tap_sees_what_flows_also_in_the_middle_of_a_text(used):
    kernel("decoder_layers")
    model, tokens = build(), torch.tensor([5, 6])
    source = sentences_to_rows([[7, 8, 9, EOS], [9, EOS]], pad_id=0)
    states = [model.start(source) for _ in range(2)]
    for step in range(3):
        with record(model, "decoder.*.out") as seen:
            looked = model.step(tokens + step, states[0])
        assert len(seen) == 2
        assert_close(model.step(tokens + step, states[1]), looked)
    assert used.count("native_decoder_layers") == 3
    assert_close(model.step(tokens, states[0]), model.step(tokens, states[1]))


def test_without_a_compiler_there_is_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    library = native_library.NativeLibrary()
    monkeypatch.setattr(native_library, "LIBRARY", library)
    assert not native_library.is_loaded(CPU, torch.float32)
    assert library.problem == "CPU kernels were not compiled: no C compiler was found"
    assert not any("native" in names for names in kernels.in_use("cpu").values())
    assert decode(build(), 2)


def test_a_compiler_that_fails_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "In file x" >&2; echo "error: no such option" >&2\nexit 1\n',
        encoding="utf-8",
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = native_library.NativeLibrary()
    assert library.load() is None
    assert library.problem == "CPU kernels were not compiled: error: no such option"
    assert list((tmp_path / "regard").iterdir()) == []


def test_the_library_is_compiled_once_into_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake, calls = tmp_path / "cc", tmp_path / "calls"
    script = '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho x >> {calls}\nfor last; do :; done\ntouch "$last"\n'
    fake.write_text(script.format(calls=calls), encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = {native_library._build() for _ in range(3)}
    assert [path.parent for path in paths] == [tmp_path / "regard"]
    assert calls.read_text() == "x\n"
    monkeypatch.setattr(native_library, "FLAGS", ("-O2",))
    assert native_library._build() not in paths
