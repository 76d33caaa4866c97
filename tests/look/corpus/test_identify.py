"""Token identifiability: the plain definition, planted cases, drawing and parting texts, going on where it stopped."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sample_targets import translator
from tiny_runs import digits, recipe, trained, write_pairs
from torch import Tensor
from torch.testing import assert_close

import regard
from regard.api import Translator
from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.look.compute import probes
from regard.look.compute.look_target import LookTarget, Side
from regard.look.compute.probes import AffineMap, Probe, ProbeExamples, fit_ridge, mean_loss
from regard.look.corpus import identify as module
from regard.look.corpus import sentences
from regard.look.corpus.identify import (
    ProbeSpec,
    RecoveryResult,
    TokenIdentifiability,
    is_token_recovered,
    measure_recovery,
    wilson_interval,
)
from regard.look.corpus.sentences import (
    LayerRef,
    SentenceSet,
    SplitVectors,
    collect_hidden_states,
    filter_examples,
    sample_examples,
    split_sentences,
)
from regard.look.render.figures import LINE_STYLES, Curve, CurvePanel, draw_curves
from regard.text.tokenizer import EOS, PAD, SOS

CPU = torch.device("cpu")
WIDTH, SIZE = 12, 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that are quick to train."""
    monkeypatch.setattr(probes, "N_HIDDEN", 100)
    monkeypatch.setattr(probes, "MIN_STEPS_PER_EPOCH", 10)


def by_definition(mapped: Tensor, inputs: Tensor, distance: str) -> list[bool]:
    """Three loops: over tokens, over candidates, over dimensions."""
    found = []
    for token in mapped.double().tolist():
        away = []
        for other in inputs.double().tolist():
            if distance == "l2":
                away.append(math.sqrt(sum((a - b) ** 2 for a, b in zip(token, other, strict=True))))
            else:
                product = sum(a * b for a, b in zip(token, other, strict=True))
                away.append(1 - product / math.sqrt(sum(a * a for a in token) * sum(b * b for b in other)))
        found.append(inputs[away.index(min(away))].tolist())
    return [nearest == own for nearest, own in zip(found, inputs.tolist(), strict=True)]


@pytest.mark.parametrize("distance", ["cosine", "l2"])
@pytest.mark.parametrize("noise", [0.0, 0.7, 3.0])
def test_recovery_equals_the_definition(distance: str, noise: float) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(25, 5, generator=generator) * torch.linspace(0.1, 4, 25)[:, None]
    inputs[7] = inputs[3]
    mapped = inputs + noise * torch.randn(25, 5, generator=generator)
    found = is_token_recovered(mapped, inputs, distance)
    assert found.tolist() == by_definition(mapped, inputs, distance)
    assert found.all() == (noise == 0)


def test_either_of_two_equal_inputs_recovers_both_but_one_that_is_only_as_near_does_not() -> None:
    inputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for distance in ("cosine", "l2"):
        assert is_token_recovered(inputs.flip(0)[[2, 1, 0]], inputs, distance).tolist() == [True, True, True]
        between = torch.tensor([[0.5, 0.5]]).expand(3, 2)
        assert is_token_recovered(between, inputs, distance).tolist() == [True, True, False]


def test_the_interval_by_hand() -> None:
    """p = 6/8; the sentences are 1 and -1 off, so the variance is 2/1 (1 + 1) / 64 = 1/16 and n = 3/16 * 16 = 3."""
    low, high = wilson_interval([4, 2], [4, 4])
    z2 = 1.959964**2
    half = math.sqrt(z2 * (0.1875 / 3 + z2 / 36))
    assert (low, high) == pytest.approx(((0.75 + z2 / 6 - half) / (1 + z2 / 3), (0.75 + z2 / 6 + half) / (1 + z2 / 3)))
    assert (low, high) == pytest.approx((0.2561, 0.9632), abs=1e-4)


@pytest.mark.parametrize(
    ("hits", "sizes", "n"),
    [([5, 5], [5, 5], 2), ([0, 0, 0], [2, 5, 3], 3), ([3, 3], [4, 4], 8), ([3], [7], 1)],
    ids=["all", "none", "as many in each", "one sentence"],
)
def test_the_interval_where_nothing_varies_between_sentences(hits: list[int], sizes: list[int], n: int) -> None:
    p, z2 = sum(hits) / sum(sizes), 1.959964**2
    half = math.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    expected = ((p + z2 / (2 * n) - half) / (1 + z2 / n), (p + z2 / (2 * n) + half) / (1 + z2 / n))
    assert wilson_interval(hits, sizes) == pytest.approx(expected, abs=1e-12)
    assert 0 <= wilson_interval(hits, sizes)[0] <= p <= wilson_interval(hits, sizes)[1] <= 1


def test_interval_covers_the_truth_with_correlated_tokens() -> None:
    """Each sentence has a share of its own; an interval that took tokens as independent would hold it 55 % of times."""
    generator, held, narrow = random.Random(0), 0, 0
    for _ in range(400):
        sizes = [generator.randint(5, 25) for _ in range(60)]
        fractions = [generator.betavariate(2, 1) for _ in sizes]
        hits = [
            sum(generator.random() < fraction for _ in range(n)) for n, fraction in zip(sizes, fractions, strict=True)
        ]
        low, high = wilson_interval(hits, sizes)
        held += low <= 2 / 3 <= high
        narrow += high - low < 0.4
    assert 0.92 <= held / 400 <= 0.98
    assert narrow == 400


@pytest.mark.parametrize("n", [4, 5, 10, 20, 100, 2000])
def test_parts_share_no_sentence_and_are_70_15_15(n: int) -> None:
    train, valid, test = split_sentences(n, 0)
    assert sorted(train + valid + test) == list(range(n))
    assert len(valid) == len(test) == max(1, round(0.15 * n))
    assert n < 20 or len(train) == round(0.7 * n)
    assert split_sentences(n, 0) == [train, valid, test]
    assert n < 10 or split_sentences(n, 1) != [train, valid, test]


def test_sampling_is_uniform_without_duplicates_and_independent_of_order() -> None:
    texts = [(f"text {number}",) for number in range(30) for _ in range(1 + 5 * (number == 7))]
    drawn = sample_examples(texts, 10, seed=3)
    assert drawn.n_examples_read == 35
    assert len(set(drawn.examples)) == 10
    assert sample_examples(reversed(texts), 10, seed=3).examples == drawn.examples
    assert sample_examples(texts, 20, seed=3).examples[:10] == drawn.examples
    assert sorted(sample_examples(texts, 99, seed=3).examples) == sorted(set(texts))
    counts = Counter(example for seed in range(600) for example in sample_examples(texts, 10, seed).examples)
    assert len(counts) == 30
    assert 150 < min(counts.values()) <= max(counts.values()) < 250  # 200, and 5 standard deviations are 58


def test_long_and_repeated_examples_are_skipped_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    good = [[[number, 9], [number]] for number in range(4)]
    twice, long = [[[1, 9], [77]], [[50], [2]]], [[[5] * 4, [1]], [[6], [1] * 6]]
    assert filter_examples([*good, *twice, *long], 3) == good
    message = "of 8 sentences are left out: 2 longer than 3 tokens (the longest has 6), 2 like another on a side"
    assert " ".join(capsys.readouterr().err.split()) == f"warning: {message}"
    assert filter_examples(good, 3) == good
    with pytest.raises(InputError) as caught:
        filter_examples([*good[:3], *long], 3)
    expected = "3 different sentences; expected at least 4 (left out: 2 longer than 3 tokens (the longest has 6))"
    assert str(caught.value) == expected
    assert capsys.readouterr().err == ""


def texts_of(make: Any, n: int = 200, size: int = SIZE, width: int = WIDTH, seed: int = 0) -> SplitVectors:
    """Sentences of random input vectors, and hidden vectors that `make` makes of them."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, size, width, generator=generator)
    hidden = make(inputs, generator)
    parts = [
        ProbeExamples(hidden[part].flatten(0, 1), inputs[part].flatten(0, 1)) for part in split_sentences(n, seed)[:2]
    ]
    return SplitVectors(
        *parts, [ProbeExamples(hidden[number], inputs[number]) for number in split_sentences(n, seed)[2]]
    )


def found_in(vectors: SplitVectors, name: str, distance: str) -> RecoveryResult:
    return measure_recovery(ProbeSpec("encoder", 1, name, distance), vectors, 0, CPU)


def orthogonal(width: int = WIDTH) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(5)))[0]


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_identity_recovers_unchanged_inputs(distance: str) -> None:
    vectors = texts_of(lambda x, _: x)
    for name in probes.PROBE_FITTERS:
        assert found_in(vectors, name, distance).accuracy == 1.0


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_linear_probe_recovers_a_rotation(distance: str) -> None:
    """The identity cannot undo it, a linear map can."""
    vectors = texts_of(lambda x, _: 3 * x @ orthogonal() + 2)
    assert found_in(vectors, "identity", distance).accuracy < 0.3
    assert found_in(vectors, "linear", distance).accuracy > 0.999
    assert found_in(vectors, "mlp", distance).accuracy > 0.999


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_no_probe_recovers_noise(distance: str) -> None:
    vectors = texts_of(lambda x, generator: torch.randn(x.shape, generator=generator))
    for name in probes.PROBE_FITTERS:
        found = found_in(vectors, name, distance)
        assert found.low <= 1 / SIZE <= found.high
        assert found.high - found.low < 0.2


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_only_the_mlp_recovers_a_nonlinear_map(distance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "MIN_STEPS_PER_EPOCH", 50)

    def bend(x: Tensor, _: torch.Generator) -> Tensor:
        return F.leaky_relu(x @ orthogonal(4), 0.05) @ orthogonal(4)

    vectors = texts_of(bend, n=100, size=30, width=4)
    linear, mlp = (found_in(vectors, name, distance) for name in ("linear", "mlp"))
    assert mlp.low > linear.high + 0.1


def test_the_linear_map_is_least_squares_where_there_is_text_enough() -> None:
    vectors = texts_of(lambda x, generator: x @ orthogonal() + 0.5 * torch.randn(x.shape, generator=generator), n=400)
    found = fit_ridge(vectors.train, vectors.valid, "l2")
    hidden, inputs = (part.double() for part in vectors.train)
    ones = torch.ones(len(hidden), 1, dtype=torch.float64)
    expected = torch.linalg.lstsq(torch.cat((hidden, ones), 1), inputs).solution
    assert_close(found.weight, expected[:-1].T, rtol=0, atol=2e-2)
    assert_close(found.bias, expected[-1], rtol=0, atol=2e-2)
    plain = AffineMap(expected[:-1].T, expected[-1])
    assert mean_loss(found, vectors.valid, "l2") <= mean_loss(plain, vectors.valid, "l2") + 1e-6


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_with_little_text_a_probe_is_no_worse_than_the_identity(distance: str) -> None:
    """Three sentences for a map of 64 x 64: what was learned is chosen by sentences it was not learned from."""
    vectors = texts_of(lambda x, generator: x + 0.4 * torch.randn(x.shape, generator=generator), n=40, width=64)
    few = SplitVectors(ProbeExamples(*(part[:30] for part in vectors.train)), *vectors[1:])
    assert found_in(few, "linear", distance).accuracy >= found_in(few, "identity", distance).accuracy - 0.02


def test_a_probe_begins_at_the_linear_map_and_a_loss_is_a_mean_over_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = texts_of(lambda x, _: 5 * x @ orthogonal() - 1)
    start = fit_ridge(vectors.train, vectors.valid, "l2")
    for n_hidden in (0, 7):
        probe = Probe(start, vectors.train, n_hidden, seed=0)
        assert_close(probe(vectors.valid.hidden).double(), start(vectors.valid.hidden), rtol=1e-4, atol=1e-4)
    whole = mean_loss(start, vectors.valid, "cosine")
    monkeypatch.setattr(probes, "CHUNK_SIZE", 7)
    assert mean_loss(start, vectors.valid, "cosine") == pytest.approx(whole)
    assert_close(fit_ridge(vectors.train, vectors.valid, "l2").weight, start.weight)


def several(lengths: list[int], **shape: object) -> list[LookTarget]:
    """Subjects of one small translator, with so many tokens on each side; every other token is the same one."""
    model = translator(**shape).model
    generator = random.Random(0)

    def subject(length: int) -> LookTarget:
        ids = [5 if place % 2 else generator.randrange(6, 20) for place in range(length - 1)]
        rows, target_in = (
            sentences_to_rows([ids], **marks, pad_id=PAD) for marks in ({"suffix_id": EOS}, {"prefix_id": SOS})
        )
        sides = {
            "encoder": Side([f"t{i}" for i in [*ids, EOS]], [], "source_embedding.out"),
            "decoder": Side([f"t{i}" for i in [SOS, *ids]], [], "target_embedding.out"),
        }
        predicted = torch.tensor([*ids, EOS])
        return LookTarget(model, sides, lambda: model.hidden_states(rows, target_in), model.logits, predicted)

    return [subject(length) for length in lengths]


LENGTHS = [5, 8, 3, 6, 9, 4, 7, 5, 6, 8, 4, 7]


def measured(subjects: list[LookTarget], **options: Any) -> TokenIdentifiability:
    chosen = {"stacks": ["encoder", "decoder"], "maps": ["identity", "linear"], "seed": 0, "about": {}, **options}
    return module.measure_token_identifiability(subjects, device=CPU, **chosen)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "none"])
def test_identity_recovers_all_of_layer_0_with_any_positions(positions: str) -> None:
    """Where positions are not in the input vectors, half of these are equal."""
    found = measured(several(LENGTHS, positions=positions), maps=["identity"])
    assert [each.spec.layer for each in found.results] == [0, 0, 1, 1, 2, 2] * 2
    assert {each.accuracy for each in found.results if each.spec.layer == 0} == {1.0}


def test_vectors_are_those_of_the_taps_and_chance_is_one_in_the_length() -> None:
    subjects = several(LENGTHS)
    texts = SentenceSet(subjects, ["decoder"], seed=0)
    read = texts.read_hidden_states({(here := LayerRef("decoder", 0)), (existing := LayerRef("decoder", 2))})
    place = 0
    for subject in texts.look_targets:
        with regard.nn.record(subject.model, "target_embedding.out", "decoder.1.out") as recorded:
            subject.run()
        length = len(subject.sides["decoder"].tokens)
        for where, name in ((here, "target_embedding.out"), (existing, "decoder.1.out")):
            assert_close(read[where][place : place + length], recorded[name][0].float())
        place += length
    split = texts.split_vectors("decoder", read[existing], read[here])
    assert [len(each.inputs) for each in split.test] == texts.token_counts_by_split("decoder")["test"]
    hidden = [split.train.hidden, split.valid.hidden, *(each.hidden for each in split.test)]
    assert_close(torch.cat(hidden), read[existing])
    facts = measured(subjects, maps=["identity"]).stacks["decoder"]
    lengths = texts.token_counts_by_split("decoder")["test"]
    assert facts["chance"] == pytest.approx(sum(n * (1 / n) for n in lengths) / sum(lengths))
    assert sum(facts["tokens"].values()) == sum(LENGTHS)


def test_layers_that_do_not_fit_together_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = several(LENGTHS)
    in_one_pass = measured(subjects, maps=["identity"])
    passes = []
    read = SentenceSet.read_hidden_states
    monkeypatch.setattr(
        SentenceSet, "read_hidden_states", lambda self, places: (passes.append(places), read(self, places))[1]
    )
    monkeypatch.setattr(sentences, "MAX_VECTOR_BYTES", 2 * sum(LENGTHS) * 8 * 4)
    assert measured(subjects, maps=["identity"]).to_dict() == in_one_pass.to_dict()
    one_by_one = [(stack, layer) for stack in ("encoder", "decoder") for layer in (1, 2)]
    assert passes == [{(stack, 0), (stack, layer)} for stack, layer in one_by_one]


def test_sentences_that_do_not_fit_into_memory_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sentences, "MAX_VECTOR_BYTES", 2 * sum(LENGTHS[:8]) * 8 * 4)
    found = measured(several(LENGTHS), maps=["identity"])
    assert sum(found.sentences.values()) == 8
    assert capsys.readouterr().err.startswith("warning: 8 of 12 sentences are used: more would take")


def test_nonfinite_hidden_states_are_refused() -> None:
    subjects = several(LENGTHS)
    with torch.no_grad():
        subjects[0].model.encoder[1].feed_forward.up_projection.weight.fill_(math.nan)
    with pytest.raises(InputError, match=r"^encoder\.1\.out: vectors that are not finite; is the model damaged\?$"):
        collect_hidden_states(subjects, [LayerRef("encoder", layer) for layer in (0, 1, 2)])


class Stopped(BaseException):
    """As by Ctrl-C."""


def test_resuming_after_any_result_gives_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "MIN_STEPS_PER_EPOCH", 1)
    monkeypatch.setattr(TokenIdentifiability, "draw", lambda self, path: path.touch())
    subjects, maps = several(LENGTHS[:4], n_layers=1, n_decoder_layers=1), ["identity", "mlp"]
    whole = measured(subjects, maps=maps, out=tmp_path / "whole")
    kept = (tmp_path / "whole" / "identify.json").read_bytes()
    assert json.loads(kept) == json.loads(json.dumps(whole.to_dict()))
    assert [each.spec for each in whole.results] == whole.specs
    assert len(whole.specs) == 2 * 2 * 2 * 2
    left = []

    def stopping(*arguments: Any) -> RecoveryResult:
        if not left:
            raise Stopped
        left.pop()
        return measure_recovery(*arguments)

    monkeypatch.setattr(module, "measure_recovery", stopping)
    out = tmp_path / "out"
    for n_found in range(len(whole.specs)):
        with pytest.raises(Stopped):
            measured(subjects, maps=maps, out=out)
        assert len(json.loads((out / "identify.json").read_bytes())["results"]) == n_found
        assert [path.name for path in out.iterdir()] == ["identify.json"]
        left.append("one more")
    assert measured(subjects, maps=maps, out=out).to_dict() == whole.to_dict()
    assert (out / "identify.json").read_bytes() == kept


def test_a_write_that_fails_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenIdentifiability, "draw", lambda self, path: path.touch())
    subjects = several(LENGTHS, n_layers=1, n_decoder_layers=1)
    whole = measured(subjects, maps=["identity"]).to_dict()
    written = {"left": 5}

    def full(path: Path, value: Any) -> None:
        written["left"] -= 1
        if not written["left"]:
            raise OSError(28, "No space left on device")
        regard.disk.write_json(path, value)

    monkeypatch.setattr(module, "write_json", full)
    with pytest.raises(InputError, match=r"cut: cannot be written \(No space left on device\); make room, or choose"):
        measured(subjects, maps=["identity"], out=tmp_path / "cut")
    assert len(json.loads((tmp_path / "cut" / "identify.json").read_bytes())["results"]) == 3
    monkeypatch.setattr(module, "write_json", regard.disk.write_json)
    assert measured(subjects, maps=["identity"], out=tmp_path / "cut").to_dict() == whole


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("identify")
    trained(recipe(folder), folder / "run")
    return regard.load(folder / "run", device="cpu")


def test_a_translator_from_texts_and_from_pairs(model: Translator, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, "many", digits(24))
    alone = model.identify([source], maps=["identity"])
    assert list(alone.stacks) == ["encoder"]
    assert sum(alone.sentences.values()) == alone.about["read"] == 24
    both = model.identify([source, target], maps=["identity", "linear"])
    assert list(both.stacks) == ["encoder", "decoder"]
    assert list(model.identify([source, target], maps=["identity"], stack="decoder").stacks) == ["decoder"]
    assert [each for each in both.results if each.spec[0::2] == ("encoder", "identity")] == alone.results
    linear = {each.spec[:2]: each.accuracy for each in both.results if each.spec.map == "linear"}
    assert min(linear.values()) > 0.75  # chance is a tenth
    fewer = model.identify([source], maps=["identity"], sentences=12)
    assert dict(fewer.sentences) == {"train": 8, "valid": 2, "test": 2}


def test_curves_keep_their_colours_bands_and_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    saved, save = [], figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *rest, **more: (saved.append(self), save(self, *rest, **more)))
    one, two = Curve([0, 1, 2], [3, 2, 1], [2, 1, 0], [4, 3, 2]), Curve([0, 1], [1, 2])
    panels = [CurvePanel("left", {"a": one, "b": two}, {"chance": 0.5}), CurvePanel("right", {"b": two})]
    for suffix, start in ((".pdf", b"%PDF"), (".svg", b"<?xml")):
        path = draw_curves(panels, tmp_path / f"curves{suffix}", xlabel="layer", ylabel="fraction", limits=(0.0, 5.0))
        assert path.read_bytes().startswith(start)
    left, right = saved[0].axes
    assert [line.get_label() for line in left.lines] == ["a", "b", "chance"]
    assert [line.get_color() for line in left.lines[:2]] == [LINE_STYLES[0][0], LINE_STYLES[1][0]]
    assert right.lines[0].get_color() == LINE_STYLES[1][0]
    assert [line.get_marker() for line in left.lines[:2]] == [LINE_STYLES[0][1], LINE_STYLES[1][1]]
    assert len(left.collections) == 1
    assert left.get_ylim() == right.get_ylim() == (0, 5)
    assert [text.get_text() for text in saved[0].legends[0].get_texts()] == ["a", "b", "chance"]
    assert len({colour for colour, _ in LINE_STYLES}) == len({marker for _, marker in LINE_STYLES}) == len(LINE_STYLES)
    many = [CurvePanel(str(number), {f"{number} {place}": two for place in range(3)}) for number in range(5)]
    assert (
        draw_curves(many, tmp_path / "many.png", xlabel="x", ylabel="y", title="five")
        .read_bytes()
        .startswith(b"\x89PNG")
    )
    assert not list(tmp_path.glob("*.new"))
