"""Shortlists: what they allow, what a search makes of that, and how they are learned."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from tiny_runs import CPU, EIGHT, learned
from torch.testing import assert_close

from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.generate import DecodingConfig
from regard.nn.quantization import quantize
from regard.predict.shortlist import Shortlist
from regard.predict.shortlist_learning import learn_shortlist
from regard.predict.translation import Translation, TranslationPredictor
from regard.runs.run_directory import RunDirectory
from regard.text.languages import Directions
from regard.text.pairs import Pair

SOURCES = [source for source, _ in EIGHT]
SEARCHES = [DecodingConfig(beam=1), DecodingConfig(beam=4, n_best=4), DecodingConfig(beam=3, n_best=2, batch=3)]


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TranslationPredictor]:
    _, task, model = RunDirectory(learned(tmp_path_factory.mktemp("learned"))).load()
    quantized = copy.deepcopy(model)
    quantize(quantized)
    return {"float32": task.make_predictor(model, CPU), "int8": task.make_predictor(quantized, CPU)}


@pytest.fixture(params=["float32", "int8"])
def predictor(predictors: dict[str, TranslationPredictor], request: pytest.FixtureRequest) -> TranslationPredictor:
    return predictors[request.param]


def allowing(predictor: TranslationPredictor, ids: set[int], by_source: dict[int, int] | None = None) -> Shortlist:
    """Return a shortlist of these tokens and special ones; a source token may allow one more."""
    special = predictor.special_tokens.decoding_tokens
    table = torch.full((len(predictor.tokenizers.source), 1), special.eos_id)
    for source, target in (by_source or {}).items():
        table[source] = target
    return Shortlist(torch.tensor(sorted({special.eos_id, *special.suppressed_ids, *ids})), table, "")


def translate(
    predictor: TranslationPredictor, shortlist: Shortlist | None, search: DecodingConfig, sources: list[str] = SOURCES
) -> list[list[Translation]]:
    shortlisted = replace(predictor, shortlist=shortlist)
    return [best for _, best in shortlisted.translate(buffered_read(sources), search, with_alignment=False)]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_complete_shortlist_changes_nothing(predictor: TranslationPredictor, search: DecodingConfig) -> None:
    complete = allowing(predictor, set(range(len(predictor.tokenizers.target))))
    assert translate(predictor, complete, search) == translate(predictor, None, search)


def digits_of(predictor: TranslationPredictor, text: str) -> set[int]:
    return set(predictor.tokenizers.target.encode(text))


@pytest.mark.parametrize("search", SEARCHES)
def test_what_is_not_allowed_is_never_written_and_every_text_ends(
    predictor: TranslationPredictor, search: DecodingConfig
) -> None:
    """The tokenizers are joint, so the tokens of a text itself are permitted too."""
    few = allowing(predictor, digits_of(predictor, "1 2"))
    for source, n_best in zip(SOURCES, translate(predictor, few, search), strict=True):
        permitted = {*few.common.tolist(), *digits_of(predictor, source)} - {
            *predictor.special_tokens.decoding_tokens.suppressed_ids
        }
        assert n_best
        for each in n_best:
            assert set(each.ids) <= permitted
            assert each.ids[-1] == predictor.special_tokens.eos_id


def test_fewer_tokens_than_the_beam_needs(predictor: TranslationPredictor) -> None:
    nothing = replace(predictor, shortlist=allowing(predictor, set()))
    assert all(nothing.translate(buffered_read(["7"]), DecodingConfig(beam=20, n_best=20)))


@pytest.mark.parametrize("search", SEARCHES)
def test_a_text_is_translated_as_by_itself(predictor: TranslationPredictor, search: DecodingConfig) -> None:
    """Each source token allows another one, so the texts of a batch have different shortlists."""
    ids = sorted(digits_of(predictor, "0 1 2 3 4 5 6 7 8 9"))
    own = allowing(predictor, set(), dict(zip(ids, [*ids[1:], ids[0]], strict=True)))
    batched = translate(predictor, own, search)
    for source, n_best in zip(SOURCES, batched, strict=True):
        (alone,) = translate(predictor, own, search, [source])
        assert [each.ids for each in n_best] == [each.ids for each in alone]
        for one, other in zip(n_best, alone, strict=True):
            assert_close(one.token_scores, other.token_scores, rtol=0, atol=1e-4)


def test_the_tokens_of_a_text_are_copied_only_within_one_vocabulary(predictor: TranslationPredictor) -> None:
    own = predictor.tokenizers.source.encode("7")
    few = allowing(predictor, set())
    n_target = len(predictor.tokenizers.target)
    assert few.allow([own], n_target, is_joint=True)[0, own].all()
    assert not few.allow([own], n_target, is_joint=False)[0, own].any()


def test_nothing_is_drawn_from_a_shortlist(predictor: TranslationPredictor) -> None:
    with pytest.raises(InputError, match="belongs to beam search and greedy search"):
        translate(predictor, allowing(predictor, set()), DecodingConfig(sample=True))


def test_learned_from_alignments(predictors: dict[str, TranslationPredictor]) -> None:
    """What was learned by heart is found with what was learned from it; sizes are kept."""
    predictor = predictors["float32"]
    pairs = [Pair(*pair) for pair in EIGHT]
    shortlist = learn_shortlist(predictor, pairs, per_token=3, common=1, model="")
    assert len(shortlist.common) == 1 + len({predictor.special_tokens.eos_id, *never(predictor)})
    assert shortlist.by_source.shape == (len(predictor.tokenizers.source), 3)
    unaligned = torch.ones(len(shortlist.by_source), dtype=torch.bool)
    unaligned[sorted({token for pair in EIGHT for token in predictor.tokenizers.source.encode(pair[0])})] = False
    assert (shortlist.by_source[unaligned] == predictor.special_tokens.eos_id).all()
    assert (shortlist.by_source[~unaligned] != predictor.special_tokens.eos_id).any(1).all()
    found = translate(predictor, shortlist, DecodingConfig())
    assert [best[0].text for best in found] == [target for _, target in EIGHT]


def never(predictor: TranslationPredictor) -> set[int]:
    return set(predictor.special_tokens.decoding_tokens.suppressed_ids)


def test_what_cannot_be_aligned(
    predictors: dict[str, TranslationPredictor], capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = predictors["float32"]
    pairs = [Pair(*EIGHT[0]), Pair("1 " * 200, "1")]
    learn_shortlist(predictor, pairs, per_token=3, common=1, model="")
    assert "1 of 2 pairs are longer than the model accepts and are left out" in capsys.readouterr().err
    several = replace(predictor, directions=Directions.of_task(["en-fr", "fr-en"], "", ""))
    with pytest.raises(InputError, match="shortlists are for those of one direction"):
        learn_shortlist(several, pairs, per_token=3, common=1, model="")
    with pytest.raises(InputError, match="nothing is aligned"):
        learn_shortlist(predictor, pairs[1:], per_token=3, common=1, model="")
