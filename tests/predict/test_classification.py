"""Classification: windows of long texts and pairs, units of scores, and refusals of what is no pair."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from encoders import CPU, DISTINCT, distinct_words, sentences, small, vocabulary
from torch.testing import assert_close

from regard.data.labels import Labels, ScoreScaler
from regard.errors import InputError
from regard.predict.classification import _wrap_windows, encode_text_windows
from regard.tasks.classify import ClassificationTask, ClassifyConfig

VOCABULARY = vocabulary()
LABELS = Labels(("neg", "neutral", "pos"), (50, 30, 20))


def task(labels: Labels = LABELS, **settings: object) -> ClassificationTask:
    return ClassificationTask(ClassifyConfig(**settings), VOCABULARY, labels)  # type: ignore[arg-type]


def test_a_long_text_is_read_in_windows_and_their_say_is_averaged_by_tokens() -> None:
    one = ClassificationTask(ClassifyConfig(length=64), distinct_words(), LABELS)
    model = small(one, n_positions=32)
    text, short = " ".join(DISTINCT[:100]), " ".join(DISTINCT[100:103])
    found = one.make_predictor(model, CPU).predict([(text, ""), (short, "")])
    windows = [framed for number, framed in encode_text_windows(one.tokenizer, one.template, [(text, "")], 32)]
    assert len(windows) > 2
    assert max(len(each.ids) for each in windows) <= 32
    ids = one.tokenizer.encode(text)
    assert len(set(ids)) == 100
    assert {index for each in windows for index in each.ids} >= set(ids)
    assert all(each.ids[1:-1] == ids[(start := ids.index(each.ids[1])) : start + 30] for each in windows)
    by_window = torch.stack([one.make_predictor(model, CPU).predict_inputs([each])[0] for each in windows])
    lengths = torch.tensor([float(len(each.ids)) for each in windows])
    assert_close(found[0], (by_window * lengths[:, None]).sum(0) / lengths.sum(), rtol=1e-4, atol=1e-5)
    assert_close(found[1], one.make_predictor(model, CPU).predict([(short, "")])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("first", "second"), [(3, 90), (90, 3), (80, 70), (20, 20), (100, 1)])
def test_every_token_of_a_long_pair_meets_every_token_of_the_other(first: int, second: int) -> None:
    one, other = list(range(1000, 1000 + first)), list(range(2000, 2000 + second))
    frame, met = task().template, set()
    for each in _wrap_windows(frame, one, other, 32):
        assert len(each.ids) <= 32
        parts = each.ids[1 : each.token_type_boundary - 1], each.ids[each.token_type_boundary : -1]
        for part, whole in zip(parts, (one, other), strict=True):
            assert len(part) >= min(len(whole), 13)
            assert part == whole[(start := whole.index(part[0])) : start + len(part)]
        met |= set(product(*parts))
    assert met == set(product(one, other))


def test_other_inputs_are_refused() -> None:
    single, pairs = (task(Labels(LABELS.names, paired=paired)) for paired in (False, True))
    with pytest.raises(InputError, match="'the cat' has a pair, but this model was trained on single texts; leave it"):
        single.make_predictor(small(single), CPU).classify([("a dog", ""), ("the cat", "a dog")])
    alone = "'a dog' stands alone, but this model was trained on pairs of texts; give the second text too, with --pair"
    with pytest.raises(InputError, match=alone):
        pairs.make_predictor(small(pairs), CPU).classify([("the cat", "a dog"), ("a dog", "")])
    unsaid = task()
    assert len(unsaid.make_predictor(small(unsaid), CPU).classify([("the cat", "a dog"), ("a dog", "")])) == 2


def test_what_is_said_is_in_the_units_of_training() -> None:
    plain, scaled = (task(Labels(scale=scale), kind="score") for scale in (ScoreScaler(), ScoreScaler(50.0, 10.0)))
    model, texts = small(plain), [(text, "") for text in sentences(5)]
    assert_close(
        scaled.make_predictor(model, CPU).predict(texts), plain.make_predictor(model, CPU).predict(texts) * 10 + 50
    )
