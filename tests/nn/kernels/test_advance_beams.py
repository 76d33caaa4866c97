"""The kernel of the beam update against plain PyTorch, search by search."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch.testing import assert_close

from regard.generate import BeamSearchConfig, SpecialTokens
from regard.generate.beam import Beams, BeamSearch, trace_back
from regard.nn.kernels import plain, plain_beam_update

kernel = pytest.importorskip("regard.nn.kernels.advance_beams")

EOS = 2
MARKS = SpecialTokens(1, EOS, suppressed_ids=(0, 1))


def config_of(width):
    return BeamSearchConfig.beam(MARKS, width, 0.6) if width else BeamSearchConfig.greedy(MARKS, 0.6)


def logits_of(n_rows, vocabulary, eos_bonus, seed):
    logits = torch.randn(n_rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2
    logits[:, EOS] += eos_bonus
    return logits


def start(config, limits, device):
    return Beams.start(torch.tensor(limits, device=device), config.beam_width, MARKS.start_id, max(limits))


def assert_equal(one, other, config):
    """Compare what is possible: beams at -inf and steps behind the last may hold anything."""
    possible = (one.cum_log_prob > -torch.inf) & ~one.done[:, None]
    assert_close(one.done, other.done)
    assert_close(one.has_failed, other.has_failed)
    assert_close(one.length, other.length)
    assert_close(one.finished_score, other.finished_score)
    going = ~one.done[:, None]
    assert_close(one.cum_log_prob.masked_fill(~going, 0.0), other.cum_log_prob.masked_fill(~going, 0.0))
    assert_close(one.last_token * possible, other.last_token * possible)
    assert trace_back(one.select(one.done.nonzero()[:, 0]).to("cpu"), config) == trace_back(
        other.select(other.done.nonzero()[:, 0]).to("cpu"), config
    )


@pytest.mark.parametrize(
    ("width", "vocabulary", "eos_bonus"), [(0, 9, 0.0), (1, 9, 0.0), (3, 5, 0.0), (4, 40, 3.0), (5, 7, -2.0), (3, 4, 0)]
)
def test_it_is_the_plain_update(width, vocabulary, eos_bonus, device):
    config, limits = config_of(width), [1, 2, 5, 7]
    one, other = (start(config, limits, device) for _ in range(2))
    search = BeamSearch(config, max(limits), device)
    for step in range(max(limits)):
        logits = logits_of(len(limits) * config.beam_width, vocabulary, eos_bonus, step).to(device)
        best = plain.top_log_probs(logits, config.n_candidates, EOS, search.suppressed)
        inputs = (*best, search.length_penalties, EOS, config.n_candidates)
        assert kernel.supports(one, *inputs)
        expected = plain_beam_update.advance_beams(other, *inputs)
        found = kernel.advance_beams(one, *inputs)
        assert ((found >= 0) & (found < config.beam_width)).all()
        possible = (one.cum_log_prob > -torch.inf) & ~one.done[:, None]
        assert_close(found * possible, expected * possible)
        assert_equal(one, other, config)
    assert one.done.all()


def test_the_first_step_may_have_the_first_beams_alone(device):
    config = config_of(3)
    one, other = (start(config, [4, 4], device) for _ in range(2))
    search = BeamSearch(config, 4, device)
    best = plain.top_log_probs(logits_of(2, 9, 0.0, 0).to(device), 6, EOS, search.suppressed)
    inputs = (*best, search.length_penalties, EOS, 6)
    assert_close(kernel.advance_beams(one, *inputs), plain_beam_update.advance_beams(other, *inputs))
    assert_equal(one, other, config)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [0, 5, 32])
def test_it_is_the_plain_update_at_size(width):
    device, config = torch.device("cuda"), config_of(width)
    limits = torch.randint(1, 12, (512,), generator=torch.Generator().manual_seed(0)).tolist()
    one, other = (start(config, limits, device) for _ in range(2))
    search = BeamSearch(config, max(limits), device)
    for step in range(max(limits)):
        logits = logits_of(len(limits) * config.beam_width, 500, 2.0, step).to(device)
        best = plain.top_log_probs(logits, config.n_candidates, EOS, search.suppressed)
        inputs = (*best, search.length_penalties, EOS, config.n_candidates)
        kernel.advance_beams(one, *inputs)
        plain_beam_update.advance_beams(other, *inputs)
        assert_equal(one, other, config)


@pytest.mark.parametrize("bad", [0, 1])
def test_what_is_not_a_number_is_told_of_its_sentence(bad, device):
    config = config_of(2)
    beams, search = start(config, [4, 4], device), BeamSearch(config_of(2), 4, device)
    score, token, end = plain.top_log_probs(logits_of(4, 9, 0.0, 0).to(device), 4, EOS, search.suppressed)
    score[2 * bad, 1] = torch.nan
    kernel.advance_beams(beams, score, token, end, search.length_penalties, EOS, 4)
    assert beams.has_failed.tolist() == [bad == 0, bad == 1]
    assert beams.done.tolist() == [bad == 0, bad == 1]


def test_the_search_takes_it(device, used):
    config = config_of(2)
    search, beams = BeamSearch(config, 4, device), start(config, [4, 4], device)
    search.advance(beams, logits_of(4, 9, 0.0, 0).to(device))
    assert used == ["top_log_probs", "advance_beams"]


def test_it_is_left_alone_where_it_cannot_serve(device):
    config = config_of(2)
    beams, search = start(config, [4, 4], device), BeamSearch(config_of(2), 4, device)
    best = plain.top_log_probs(logits_of(4, 9, 0.0, 0).to(device), 4, EOS, search.suppressed)
    rest = (search.length_penalties, EOS, 4)
    assert kernel.supports(beams, *best, *rest)
    assert not kernel.supports(beams, best[0].double(), *best[1:], *rest)
    assert not kernel.supports(beams, *best, search.length_penalties, EOS, 65)
    strided = Beams(**{f.name: getattr(beams, f.name) for f in fields(Beams)})
    strided.last_token = torch.zeros(2, 4, dtype=torch.long, device=device)[:, ::2]
    assert not kernel.supports(strided, *best, *rest)
