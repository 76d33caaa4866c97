"""The encoder-decoder: packed rows, cached steps, shared weights, taps and compilation."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from sentences import NORMS, POSITIONS, VOCABULARY, packed, tiny_config, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.batches import Rows
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import record, taps

SAMPLE_PAIRS = [
    ([3, 4, 5, 6, 2], [1, 7, 8]),
    ([9, 2], [1, 3, 3, 10, 4]),
    ([5, 5, 5, 2], [1]),
    ([11, 10, 9, 8, 7, 2], [1, 6, 5, 4]),
]
LAYOUT = [(0, 1), (2, 3)]


def batch() -> tuple[Rows, Rows]:
    source = packed(*([SAMPLE_PAIRS[i][0] for i in row] for row in LAYOUT))
    return source, packed(*([SAMPLE_PAIRS[i][1] for i in row] for row in LAYOUT))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_packed_rows_equal_single_texts(positions: str, norm: str) -> None:
    model = tiny_model(positions=positions, norm=norm)
    source, target = batch()
    logits = model(source, target)
    assert logits.shape == (*target.ids.shape, VOCABULARY)
    for r, row in enumerate(LAYOUT):
        for number, i in enumerate(row, 1):
            separate = model(packed([SAMPLE_PAIRS[i][0]]), packed([SAMPLE_PAIRS[i][1]]))
            assert_close(logits[r, target.segment[r] == number], separate[0], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("positions", POSITIONS)
def test_future_cannot_change_the_past(positions: str) -> None:
    model, source = tiny_model(positions=positions), packed([SAMPLE_PAIRS[0][0]])
    one, other = model(source, packed([[1, 2, 3, 4, 5]])), model(source, packed([[1, 2, 3, 9, 6]]))
    assert_close(one[:, :3], other[:, :3], rtol=0, atol=1e-14)
    assert not torch.allclose(one[:, 3:], other[:, 3:])


@pytest.mark.parametrize("positions", POSITIONS)
def test_other_segments_change_nothing(positions: str) -> None:
    model, (first, second) = tiny_model(positions=positions), SAMPLE_PAIRS[:2]
    source, target = packed([first[0], second[0]]), packed([first[1], second[1]])
    changed = packed([first[0], [7, 6]]), packed([first[1], [1, 9, 9, 2, 8]])
    mine = target.segment == 1
    assert_close(model(source, target)[mine], model(*changed)[mine], rtol=0, atol=1e-14)
    assert not torch.allclose(model(source, target)[~mine], model(*changed)[~mine])


def test_encoder_is_bidirectional() -> None:
    """Every source token of the sentence reaches every target position, also the first."""
    model, target = tiny_model(), packed([[1, 5]])
    plain = model(packed([[3, 4, 5, 6]]), target)
    for i in range(4):
        source = [3, 4, 5, 6]
        source[i] = 10
        assert ((model(packed([source]), target) - plain).abs().amax(-1) > 1e-6).all()


def test_without_positions_source_order_does_not_matter() -> None:
    target = packed([[1, 5]])
    bag, ordered = tiny_model(positions="none"), tiny_model(positions="sinusoidal")
    sources = packed([[3, 4, 5, 6]]), packed([[6, 4, 3, 5]])
    assert_close(bag(sources[0], target), bag(sources[1], target), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(ordered(sources[0], target), ordered(sources[1], target))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_equals_the_transformer_of_torch() -> None:
    """With pre-norm, nn.Transformer has the same layers and final norms; embeddings and softmax are ours."""
    model = tiny_model(norm="pre")
    theirs = nn.Transformer(16, 2, 2, 2, 24, 0.0, batch_first=True, norm_first=True, dtype=torch.float64)
    names = {
        "self_attn.in_proj_": "attention.projection.",
        "self_attn.out_proj.": "attention.output.",
        "multihead_attn.in_proj_": "cross_attention.projection.",
        "multihead_attn.out_proj.": "cross_attention.output.",
        "linear1.": "feed_forward.up_projection.",
        "linear2.": "feed_forward.down_projection.",
        "norm1.": "attention_residual.norm.",
    }
    last = {
        "encoder": {"norm2.": "feed_forward_residual.norm."},
        "decoder": {"norm2.": "cross_attention_residual.norm.", "norm3.": "feed_forward_residual.norm."},
    }
    ours, copied = model.state_dict(), {}
    for name in theirs.state_dict():
        stack, _, rest = name.partition(".")
        if rest.startswith("norm."):
            copied[name] = ours[f"{stack}_{rest}"]
            continue
        _, layer, rest = rest.split(".", 2)
        for old, new in {**names, **last[stack]}.items():
            rest = rest.replace(old, new) if rest.startswith(old) else rest
        copied[name] = ours[f"{stack}.{layer}.{rest}"]
    theirs.load_state_dict(copied)
    source, target = packed([SAMPLE_PAIRS[0][0]], [SAMPLE_PAIRS[1][0]]), packed([[1, 5, 6]], [[1, 8, 9]])
    expected = theirs(
        model.source_embedding(source.ids, source.position),
        model.target_embedding(target.ids, target.position),
        tgt_mask=torch.ones(3, 3, dtype=torch.bool).triu(1),
        src_key_padding_mask=source.segment == 0,
        memory_key_padding_mask=source.segment == 0,
    )
    expected = expected @ model.softmax_embedding.weight.T
    assert_close(model(source, target), expected, rtol=1e-10, atol=1e-11)


def decode_stepwise(model: TransformerSeq2Seq, source: Rows, target: Tensor) -> Tensor:
    """Return the logits of a target, decoded step by step."""
    state = model.start(source)
    return torch.stack([model.step(tokens, state) for tokens in target.T], 1)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
@torch.no_grad()
def test_cached_decoding_equals_one_pass(positions: str, norm: str) -> None:
    model = tiny_model(positions=positions, norm=norm)
    source = packed(*([pair[0]] for pair in SAMPLE_PAIRS))
    target = torch.randint(VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(0))
    whole = model(source, packed(*([row] for row in target.tolist())))
    assert_close(decode_stepwise(model, source, target), whole, rtol=1e-10, atol=1e-11)


@torch.no_grad()
def test_cached_decoding_equals_one_pass_beyond_the_initial_capacity() -> None:
    model, source = tiny_model(positions="rotary").float(), packed([[3, 4, 2]], [[5, 2]])
    target = torch.randint(VOCABULARY, (2, 70), generator=torch.Generator().manual_seed(1))
    whole = model(source, packed(*([row] for row in target.tolist())))
    assert_close(decode_stepwise(model, source, target), whole, rtol=1e-3, atol=1e-4)


SELECTIONS = {
    "stay": [[0], [1], [2], [3]],
    "drop": [[0], [2]],
    "drop to the last": [[3]],
    "reorder": [[2], [0], [3], [1]],
    "drop and reorder": [[3], [1]],
    "repeat a sentence": [[0], [0], [1], [2], [3]],
    "replace a sentence": [[0], [1], [1], [3]],
    "widen": [[0, 0], [1, 1], [2, 2], [3, 3]],
    "widen and drop": [[1, 1, 1], [3, 3, 3]],
}


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("positions", ["sinusoidal", "relative-values", "rotary"])
@torch.no_grad()
def test_selected_rows_continue_their_own_sentences(name: str, positions: str) -> None:
    model, source = tiny_model(positions=positions), packed(*([pair[0]] for pair in SAMPLE_PAIRS))
    rows = torch.tensor(SELECTIONS[name])
    generator = torch.Generator().manual_seed(2)
    past = torch.randint(VOCABULARY, (4, 3), generator=generator)
    now = torch.randint(VOCABULARY, (rows.numel(), 3), generator=generator)
    state = model.start(source)
    for tokens in past.T:
        model.step(tokens, state)
    state.select(rows)
    assert state.length == 3
    stepwise = torch.stack([model.step(tokens, state) for tokens in now.T], 1)
    for i, row in enumerate(rows.flatten().tolist()):
        whole = model(packed([SAMPLE_PAIRS[row][0]]), packed([[*past[row].tolist(), *now[i].tolist()]]))
        assert_close(stepwise[i], whole[0, 3:], rtol=1e-10, atol=1e-11)


@torch.no_grad()
def test_beams_are_reordered_at_every_step() -> None:
    model, source = (
        tiny_model(positions="relative"),
        packed([SAMPLE_PAIRS[0][0]], [SAMPLE_PAIRS[1][0]], [SAMPLE_PAIRS[3][0]]),
    )
    state = model.start(source)
    texts = [[1], [1], [1]]
    owner = [0, 1, 2]
    model.step(torch.tensor([1, 1, 1]), state)
    for rows in ([[0, 0], [1, 1], [2, 2]], [[1, 0], [2, 2], [5, 4]], [[1, 1], [4, 5]], [[3, 2]]):
        state.select(torch.tensor(rows))
        flat_rows = [row for beams in rows for row in beams]
        texts = [[*texts[row], 3 + i] for i, row in enumerate(flat_rows)]
        owner = [owner[row] for row in flat_rows]
        logits = model.step(torch.tensor([text[-1] for text in texts]), state)
        for i, text in enumerate(texts):
            place = [0, 1, 3][owner[i]]
            whole = model(packed([SAMPLE_PAIRS[place][0]]), packed([text]))
            assert_close(logits[i], whole[0, -1], rtol=1e-10, atol=1e-11)


@torch.no_grad()
def test_widening_before_the_first_step() -> None:
    model, source = tiny_model(), packed([SAMPLE_PAIRS[0][0]], [SAMPLE_PAIRS[1][0]])
    state = model.start(source)
    state.select(torch.tensor([[0, 0, 0], [1, 1, 1]]))
    logits = model.step(torch.tensor([1, 2, 3, 4, 5, 6]), state)
    for i in range(6):
        whole = model(packed([SAMPLE_PAIRS[i // 3][0]]), packed([[i + 1]]))
        assert_close(logits[i], whole[0, 0], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("active", [False, True])
@torch.no_grad()
def test_empty_source_gives_zero_cross_attention(active: bool) -> None:
    """Zeros instead of NaN, in one pass and stepwise."""
    model, source = tiny_model(), packed([[3, 4]], [[]])
    if not active:
        whole, steps = (
            model(source, packed([[1, 5]], [[1, 5]])),
            decode_stepwise(model, source, torch.tensor([[1, 5], [1, 5]])),
        )
    else:
        with record(model, "*.weights"):
            whole = model(source, packed([[1, 5]], [[1, 5]]))
            steps = decode_stepwise(model, source, torch.tensor([[1, 5], [1, 5]]))
    assert torch.isfinite(whole).all()
    assert_close(steps, whole, rtol=1e-10, atol=1e-11)


def test_taps_have_the_documented_names() -> None:
    names = list(taps(tiny_model()))
    for part in ("query", "key", "value", "scores", "masked_scores", "weights", "mixed"):
        for layer in (0, 1):
            assert f"encoder.{layer}.attention.{part}" in names
            assert f"decoder.{layer}.attention.{part}" in names
            assert f"decoder.{layer}.cross_attention.{part}" in names
    assert {"source_embedding.out", "target_embedding.out", "encoder.0.out", "decoder.1.out"} <= set(names)
    assert len(names) == 2 * 7 + 2 * 14 + 4 + 2


def test_recorded_weights_of_all_three_attentions() -> None:
    """The causal weights of a target of four tokens are zero right of the diagonal."""
    model, source, target = tiny_model(), packed([[3, 4, 2]]), packed([[1, 7, 8, 9]])
    with record(model, "*.weights") as recorded:
        model(source, target)
    shapes = {name: tuple(weights.shape) for name, weights in recorded.items()}
    assert shapes == {
        "encoder.0.attention.weights": (1, 2, 3, 3),
        "encoder.1.attention.weights": (1, 2, 3, 3),
        "decoder.0.attention.weights": (1, 2, 4, 4),
        "decoder.1.attention.weights": (1, 2, 4, 4),
        "decoder.0.cross_attention.weights": (1, 2, 4, 3),
        "decoder.1.cross_attention.weights": (1, 2, 4, 3),
    }
    for name, weights in recorded.items():
        assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-14)
        if name.startswith("decoder") and "cross" not in name:
            assert (weights.triu(1) == 0).all()
            assert (weights[..., torch.ones(4, 4).tril().bool()] > 0).all()


def test_cross_attention_is_recorded_during_decoding() -> None:
    model, source = tiny_model(), packed([[3, 4, 2]], [[5, 2]])
    with record(model, "decoder.*.cross_attention.weights") as recorded, torch.no_grad():
        whole = model(source, packed([[1, 7]], [[1, 8]]))
        first = {name: weights[:, :, :1] for name, weights in recorded.items()}
        state = model.start(source)
        logits = model.step(torch.tensor([1, 1]), state)
    for name, weights in recorded.items():
        assert_close(weights, first[name], rtol=1e-10, atol=1e-12)
    assert_close(logits, whole[:, 0], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_fused_equals_recorded(positions: str, norm: str, train: bool, dtype: torch.dtype, tolerance: float) -> None:
    """Also in training with dropout: recording draws no random numbers."""
    shape = {"n_layers": 1, "n_decoder_layers": 1, "dropout": 0.2}
    model = tiny_model(positions=positions, norm=norm, **shape).to(dtype).train(train)
    source, target = batch()
    direction = torch.randn(*target.ids.shape, VOCABULARY, dtype=dtype)
    parameters = list(model.parameters())

    def run() -> tuple[Tensor, tuple[Tensor, ...]]:
        torch.manual_seed(3)
        logits = model(source, target)
        token_mask = (target.segment > 0)[..., None]
        return logits, torch.autograd.grad((logits * direction * token_mask).sum(), parameters)

    logits, gradients = run()
    with record(model, "*"):
        recorded_logits, recorded_gradients = run()
    assert_close(recorded_logits, logits, rtol=tolerance, atol=tolerance)
    assert_close(recorded_gradients, gradients, rtol=10 * tolerance, atol=10 * tolerance)


COMPILED = """
import torch
from sentences import packed, tiny_model
from regard.nn import edit, record

torch.set_num_threads(1)
close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
source, target = packed([[3, 4, 2], [5, 2]], [[6, 7, 8, 2]]), packed([[1, 7], [1, 8, 9]], [[1, 3]])
for positions, norm in (("sinusoidal", "post"), ("relative-values", "pre"), ("rotary", "post")):
    model = tiny_model(positions=positions, norm=norm, n_layers=1, n_decoder_layers=1)
    eager = model(source, target)
    with record(model, "*.weights") as expected:
        model(source, target)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    close(compiled(source, target), eager)
    with record(model, "*.weights") as recorded:
        close(compiled(source, target), eager)
    assert len(recorded) == 3
    close(recorded, expected)
    with edit(model, "decoder.0.out", torch.zeros_like):
        assert not torch.allclose(compiled(source, target), eager)
    outer, inner = record(model, "*.weights"), record(model, "*.weights")
    outer.__enter__(), (last := inner.__enter__()), outer.__exit__(None, None, None)  # as two threads may
    compiled(source, target)
    assert len(last) == 3
    inner.__exit__(None, None, None)
    close(compiled(source, target), eager)
    compiled(source, target).sum().backward()
"""


@pytest.mark.slow
def test_compiles_without_graph_breaks_and_taps_still_fire(request: pytest.FixtureRequest) -> None:
    """In a subprocess, because the shape checks of the tests cannot be compiled."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], cwd=request.path.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_shared_weights() -> None:
    def three(*, tied: bool, joint: bool) -> tuple[int, int, int]:
        model = TransformerSeq2Seq(tiny_config(tied=tied), VOCABULARY, VOCABULARY, joint=joint)
        weights = (model.source_embedding.tokens, model.target_embedding.tokens, model.softmax_embedding)
        return tuple(id(module.weight) for module in weights)

    source, target, softmax = three(tied=True, joint=True)
    assert source == target == softmax
    source, target, softmax = three(tied=True, joint=False)
    assert source != target == softmax
    source, target, softmax = three(tied=False, joint=False)
    assert len({source, target, softmax}) == 3


def test_vocabularies_may_differ() -> None:
    model = TransformerSeq2Seq(tiny_config(), 5, 9, joint=False)
    assert model(packed([[4, 2]]), packed([[1, 8, 7]])).shape == (1, 3, 9)


def test_joint_vocabularies_must_have_equal_sizes() -> None:
    with pytest.raises(AssertionError, match="source 5, target 9"):
        TransformerSeq2Seq(tiny_config(), 5, 9, joint=True)


def n_parameters(vocabulary: int, *, joint: bool, **changes: object) -> int:
    config = TransformerSeq2SeqConfig(preset="base", **{**TransformerSeq2SeqConfig.presets["base"], **changes})
    with torch.device("meta"):
        model = TransformerSeq2Seq(config, vocabulary, vocabulary, joint=joint)
    return sum(parameter.numel() for parameter in model.parameters())


def test_base_has_the_published_size() -> None:
    """65M are published for a joint vocabulary of about 37k."""
    d, f, v = 512, 2048, 32_000
    attention = 4 * (d * d + d)
    feed_forward = d * f + f + f * d + d
    norm = 2 * d
    stacks = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert n_parameters(v, joint=True) == v * d + stacks == 60_522_496
    assert n_parameters(v, joint=False) == 2 * v * d + stacks
    assert n_parameters(v, joint=False, tied=False) == 3 * v * d + stacks
    assert n_parameters(v, joint=True, norm="pre") == v * d + stacks + 2 * norm
    assert 62e6 < n_parameters(37_000, joint=True) < 66e6


def test_decoding_uses_updated_weights() -> None:
    """Also with a vocabulary so large that decoding uses a prepacked copy of it."""
    config = TransformerSeq2SeqConfig(
        **apply_preset({"preset": "tiny", "d_model": 16, "d_ff": 16, "n_heads": 2, "dropout": 0.0})
    )
    model = TransformerSeq2Seq(config, 9000, 9000, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    source = packed(*[[[3, 4, 2]]] * 12)
    target = torch.randint(3, 9000, (12, 2), generator=torch.Generator().manual_seed(1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            whole = model(source, packed(*([row] for row in target.tolist())))
            assert_close(decode_stepwise(model, source, target), whole, rtol=1e-4, atol=1e-4)
        model(source, packed(*([row] for row in target.tolist()))).logsumexp(-1).sum().backward()
        optimiser.step()
