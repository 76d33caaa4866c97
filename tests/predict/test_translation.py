"""Translation: results in input order, scores against forced decoding, and refusals of what does not fit."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import pytest
import torch
from tiny_runs import CPU, EIGHT, digits, learned
from torch.testing import assert_close

from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.generate import DecodingConfig, length_penalty
from regard.models.seq2seq import TransformerSeq2Seq
from regard.predict.translation import EMPTY_TRANSLATION, Translation
from regard.runs.run_directory import RunDirectory
from regard.text.tokenizer import EOS


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "beam 0: expected at least 1 and at most 1,000"),
        ({"n_best": 0}, "n-best 0: expected at least 1 and at most 1,000"),
        ({"batch": 0}, "batch 0: expected at least 1 and at most 65,536"),
        ({"alpha": -1.0}, "alpha -1.0: expected 0 (no length penalty) or more and at most 10"),
        ({"alpha": math.nan}, "alpha nan: expected 0 (no length penalty) or more and at most 10"),
        ({"alpha": math.inf}, "alpha inf: expected 0 (no length penalty) or more and at most 10"),
        ({"beam": 10**9}, "beam 1000000000: expected at least 1 and at most 1,000"),
        ({"n_best": 100_000}, "n-best 100000: expected at least 1 and at most 1,000"),
        ({"seed": -1}, "seed -1: expected 0 or more and at most 9,223,372,036,854,775,807"),
        ({"sample": True, "beam": 4}, "beam belongs to beam search, which --sample replaces; leave one of them out"),
        ({"n_best": 5, "beam": 4}, "n-best 5 needs a beam at least as wide; pass --beam 5 or more"),
    ],
)
def test_a_search_that_cannot_be(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as caught:
        DecodingConfig(**wrong)
    assert str(caught.value) == message


DEFAULT_DECODING = DecodingConfig()


class Learned:
    """A model that knows eight pairs by heart."""

    def __init__(self, folder_factory: pytest.TempPathFactory) -> None:
        run = RunDirectory(learned(folder_factory.mktemp("learned")))
        _, self.task, self.model = run.load()
        self.predictor = self.task.make_predictor(self.model, CPU)

    def translate(
        self, texts: list[str], search: DecodingConfig = DEFAULT_DECODING, **options: bool
    ) -> list[list[Translation]]:
        found = list(self.predictor.translate(buffered_read(texts), search, **options))
        assert [text for text, _ in found] == texts
        return [best for _, best in found]


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return Learned(tmp_path_factory)


SEARCHES = [
    DecodingConfig(beam=1),
    DecodingConfig(beam=4),
    DecodingConfig(beam=1, batch=3),
    DecodingConfig(sample=True, top_k=1),
]


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam", "small batches", "sample the likeliest"])
def test_eight_pairs_learned_by_heart_are_all_exact(knowing: Learned, search: DecodingConfig) -> None:
    assert [best[0].text for best in knowing.translate([s for s, _ in EIGHT], search)] == [t for _, t in EIGHT]


def test_results_come_in_input_order_whatever_the_lengths(knowing: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.buckets.BUFFER_SIZE", 5)
    texts = [source for source, _ in [*EIGHT, *digits(9, seed=7, least=1, most=12)]]
    batched = knowing.translate(texts, DecodingConfig(beam=2, batch=3))
    for text, best in zip(texts, batched, strict=True):
        alone = knowing.translate([text], DecodingConfig(beam=2))[0][0]
        assert best[0].text == alone.text
        assert best[0].score == pytest.approx(alone.score, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_the_score_is_the_sum_of_its_tokens_over_the_length_penalty_and_forced_decoding_repeats_it(
    knowing: Learned, alpha: float
) -> None:
    source = EIGHT[0][0]
    found = knowing.translate([source], DecodingConfig(beam=3, n_best=3, alpha=alpha))[0]
    assert [t.score for t in found] == sorted((t.score for t in found), reverse=True)
    target = knowing.task.tokenizers.target
    for number, best in enumerate(found):
        assert best.tokens[-1] == "<eos>"
        assert len(best.tokens) == len(best.token_scores)
        assert best.score == pytest.approx(sum(best.token_scores) / length_penalty(len(best.tokens), alpha))
        ids = target.encode(best.text)
        if number and target.display_tokens([*ids, EOS]) != best.tokens:
            continue  # the model spelled the text in other pieces than the tokenizer would
        forced = next(knowing.predictor.force_decode([(knowing.task.tokenizers.source.encode(source), ids)], alpha))
        assert forced.hypothesis.token_scores == pytest.approx(best.token_scores, abs=1e-4)
        assert forced.hypothesis.score == pytest.approx(best.score, abs=1e-4)


def test_forced_attention_has_every_layer_head_and_token_and_sums_to_1(knowing: Learned) -> None:
    tokenizer = knowing.task.tokenizers.source
    pairs = [tuple(map(tokenizer.encode, pair)) for pair in [*EIGHT, *digits(12, seed=3)]]
    found = list(knowing.predictor.force_decode(pairs))
    for (source, target), forced in zip(pairs, found, strict=True):
        assert forced.hypothesis.ids == (*target, EOS)
        assert forced.attention.shape == (1, 2, len(target) + 1, len(source) + 1)
        assert_close(forced.attention.sum(-1), torch.ones(1, 2, len(target) + 1))


@pytest.mark.parametrize("most", [1, 100, 10_000])
def test_forced_decoding_in_groups_of_any_size(knowing: Learned, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    pairs = [tuple(map(knowing.task.tokenizers.source.encode, pair)) for pair in digits(9, seed=3, least=1, most=9)]
    monkeypatch.setattr("regard.predict.translation.MAX_ATTENTION_CELLS", most)
    for pair, forced in zip(pairs, knowing.predictor.force_decode(pairs), strict=True):
        alone = next(knowing.predictor.force_decode([pair]))
        assert_close(forced.attention, alone.attention, rtol=0, atol=1e-5)
        assert forced.hypothesis.score == pytest.approx(alone.hypothesis.score, abs=1e-4)


def test_too_much_at_once_is_named(knowing: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_rows: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(knowing.model, "start", start)
    with pytest.raises(InputError, match=r"^out of memory with 2 texts at once; pass a smaller --batch$"):
        knowing.translate(["1", "2"])


def test_the_attention_of_a_translation_is_that_of_the_very_tokens_that_were_written(knowing: Learned) -> None:
    """Samples too, whose pieces are seldom those the tokenizer would choose."""
    source, target = knowing.task.tokenizers.source, knowing.task.tokenizers.target
    text = EIGHT[0][0]
    drawn = DecodingConfig(sample=True, temperature=2.0, n_best=4)
    for best in [
        *knowing.translate([text], with_attention=True)[0],
        *knowing.translate([text], drawn, with_attention=True)[0],
    ]:
        assert best.source_tokens == source.display_tokens([*source.encode(text), EOS])
        by_name = {target.display_tokens([i])[0]: i for i in range(len(target))}
        ids = [by_name[token] for token in best.tokens]
        forced = next(knowing.predictor.force_decode([(source.encode(text), ids[:-1])]))
        assert_close(best.attention, forced.attention, rtol=0, atol=1e-5)
        assert forced.hypothesis.token_scores == pytest.approx(best.token_scores, abs=1e-4)
    assert knowing.translate([text])[0][0].attention is None


def test_the_likelihood_is_that_of_forced_decoding(knowing: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.predict.translation.LIKELIHOOD_BATCH_SIZE", 5)
    pairs = [tuple(map(knowing.task.tokenizers.source.encode, pair)) for pair in [*EIGHT, *digits(12, seed=3)]]
    nll, n_tokens = knowing.predictor.compute_nll(pairs)
    scores = [forced.hypothesis.token_scores for forced in knowing.predictor.force_decode(pairs)]
    assert n_tokens == sum(map(len, scores))
    assert nll == pytest.approx(-sum(map(sum, scores)), rel=1e-5)


def test_only_text_is_ever_written(knowing: Learned) -> None:
    search = DecodingConfig(sample=True, temperature=50.0, n_best=60)
    for best in knowing.translate(["1 2"], search, with_alignment=False)[0]:
        assert not {"<pad>", "<sos>"} & set(best.tokens)
        assert "<eos>" not in best.tokens[:-1]


def test_alignment_names_each_target_word_once_or_is_left_out(knowing: Learned) -> None:
    for best in knowing.translate([s for s, _ in EIGHT]):
        n_words = len(best[0].text.split())
        assert [t for _, t in best[0].alignment] == list(range(n_words))
        assert all(0 <= s < n_words for s, _ in best[0].alignment)
    assert knowing.translate([EIGHT[0][0]], with_alignment=False)[0][0].alignment == []


def test_samples_follow_their_seed(knowing: Learned) -> None:
    def drawn(seed: int) -> list[str]:
        search = DecodingConfig(sample=True, temperature=1.5, n_best=2, seed=seed)
        return [each.text for each in knowing.translate(["9"], search, with_alignment=False)[0]]

    first = drawn(1)
    assert first == drawn(1) != drawn(2)
    assert len(set(first)) == 2


def test_samples_are_the_same_however_the_texts_are_grouped(knowing: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["9", "1 2", "", "3", "4 5 6 7", "8"]
    batched = knowing.translate(texts, DecodingConfig(sample=True, temperature=1.5, seed=3), with_alignment=False)
    monkeypatch.setattr("regard.data.buckets.BUFFER_SIZE", 2)
    one_by_one = knowing.translate(
        texts, DecodingConfig(sample=True, temperature=1.5, seed=3, batch=1), with_alignment=False
    )
    assert [best[0].tokens for best in batched] == [best[0].tokens for best in one_by_one]


def test_truncated_translations_are_counted(
    knowing: Learned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    knowing.translate([s for s, _ in EIGHT])
    assert "truncated" not in capsys.readouterr().err
    monkeypatch.setattr("regard.predict.translation.MAX_EXTRA_TOKENS", -2)
    knowing.translate([s for s, _ in EIGHT], DecodingConfig(beam=1))
    assert "8 of 8 translations were truncated at their limit" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("damaged", [slice(9, 10), slice(None)], ids=["one row", "all"])
@pytest.mark.parametrize(
    "search",
    [
        DecodingConfig(),
        DecodingConfig(beam=1),
        DecodingConfig(sample=True),
        DecodingConfig(sample=True, top_k=3, top_p=0.5, n_best=2),
    ],
    ids=str,
)
def test_weights_that_are_not_numbers_are_named(knowing: Learned, search: DecodingConfig, damaged: slice) -> None:
    broken = copy.deepcopy(knowing.model)
    with torch.no_grad():
        broken.softmax_embedding.weight[damaged] = torch.nan
    with pytest.raises(InputError, match="the model's scores are not numbers"):
        list(knowing.task.make_predictor(broken, CPU).translate([["1 2"]], search))


@pytest.mark.parametrize("text", ["", "  ", "\t"])
def test_a_blank_text_has_a_blank_translation(knowing: Learned, text: str) -> None:
    """So that the lines of a file stay side by side with those of its translation."""
    alone = knowing.translate(["1 2"])[0]
    assert knowing.translate([text, "1 2", text]) == [[EMPTY_TRANSLATION], alone, [EMPTY_TRANSLATION]]


def test_a_text_too_long_is_refused_not_cut(knowing: Learned) -> None:
    refusal = r"^(text|target) 1, '1 1 1 .*\.\.\.', has \d+ tokens; this model takes at most 31; split it"
    with pytest.raises(InputError, match=refusal):
        knowing.translate(["1 " * 40])
    long, short = map(knowing.task.tokenizers.source.encode, ("1 " * 40, "1"))
    for pair in ((long, short), (short, long)):
        with pytest.raises(InputError, match=refusal):
            knowing.predictor.compute_nll([pair])


@pytest.fixture
def quiet_model(knowing: Learned) -> Iterator[TransformerSeq2Seq]:
    yield knowing.model
    assert not knowing.model.training


def test_using_a_model_leaves_it_as_it_was(quiet_model: TransformerSeq2Seq, knowing: Learned) -> None:
    before = {name: weight.clone() for name, weight in quiet_model.state_dict().items()}
    knowing.translate(["1 2 3"])
    for name, weight in quiet_model.state_dict().items():
        assert torch.equal(weight, before[name])
