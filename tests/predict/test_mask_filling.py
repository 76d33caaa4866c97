"""Mask filling: probabilities against the plain definition, and words put back into the text as they are written."""

from __future__ import annotations

import pytest
import torch
from encoders import CPU, small, vocabulary
from torch.testing import assert_close

from regard.errors import InputError
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.mask_filling import compute_masked_lm_logits
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

VOCABULARY = vocabulary()


def task(**settings: object) -> PretrainingTask:
    return PretrainingTask(PretrainConfig(**{"length": 32, **settings}), VOCABULARY)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_masks_are_tokens_and_the_rest_is_as_always(kind: str) -> None:
    words = vocabulary(kind, 330)
    one = PretrainingTask(PretrainConfig(objective="masked"), words)
    filler, whole = one.make_predictor(small(one), CPU), words.encode("the cat sits on the mat.")
    ids = filler.encode_masked("the [MASK] sits on the mat.").ids[1:-1]
    cat = words.encode("cat") if kind == "wordpiece" else words.encode_words(["cat"])[0]
    place = ids.index(filler.mask_id)
    assert [*ids[:place], *cat, *ids[place + 1 :]] == whole
    assert filler.encode_masked("[MASK]").ids[1:-1] == [filler.mask_id]
    assert filler.encode_masked("[MASK][MASK] cat").ids[1:3] == [filler.mask_id] * 2


def test_probabilities_of_every_mask() -> None:
    one = task(objective="masked")
    model = small(one)
    filler = one.make_predictor(model, CPU)
    found = filler.fill("the [MASK] sits on [MASK]", 3)
    assert [len(words) for words in found] == [3, 3]
    framed = filler.encode_masked("the [MASK] sits on [MASK]")
    logits = compute_masked_lm_logits(model, model(inputs_to_rows([framed], one.template.pad_id)))[0]
    place = framed.ids.index(filler.mask_id)
    best = logits[place].softmax(-1).topk(3)
    assert_close(torch.tensor([each.probability for each in found[0]]), best.values)
    assert [each.word for each in found[0]] == [
        VOCABULARY.display_tokens([index])[0] for index in best.indices.tolist()
    ]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "characters"])
def test_the_rest_of_the_text_is_as_it_was_written(kind: str) -> None:
    one = PretrainingTask(PretrainConfig(objective="masked"), vocabulary(kind, 330))
    text = "  The [MASK]  SITS\u00a0on Café [MASK]!"
    for number, words in enumerate(one.make_predictor(small(one), CPU).fill(text, 300)):
        before, after = (("  The", "  SITS\u00a0on Café [MASK]!"), ("  The [MASK]  SITS\u00a0on Café", "!"))[number]
        for each in words:
            assert each.text.startswith(before)
            assert each.text.endswith(after)
            assert each.text[len(before) : -len(after)].strip() == each.word.removeprefix("##")


def test_a_subword_that_continues_a_word_touches_it() -> None:
    for kind in ("wordpiece", "bpe"):
        one = PretrainingTask(PretrainConfig(objective="masked"), vocabulary(kind, 330))
        found = {each.text for words in one.make_predictor(small(one), CPU).fill("(Se [MASK])", 400) for each in words}
        assert {"(Se cat)", "(Seat)" if kind == "bpe" else "(Set)"} <= found


def test_a_word_does_not_touch_the_one_before_it() -> None:
    """Though the mask did; it may touch what is no word."""
    for kind in ("wordpiece", "bpe"):
        one = PretrainingTask(PretrainConfig(objective="masked"), vocabulary(kind, 330))
        found = {each.text for words in one.make_predictor(small(one), CPU).fill("Se[MASK]!", 400) for each in words}
        assert {"Se cat!", "Seat!" if kind == "bpe" else "Set!"} <= found
        assert ("Secat!" in found) == (kind == "bpe")
    one = PretrainingTask(PretrainConfig(objective="masked"), vocabulary("wordpiece", 330))
    found = {each.text for words in one.make_predictor(small(one), CPU).fill("([MASK]!", 400) for each in words}
    assert "(cat!" in found


def test_what_cannot_be_filled() -> None:
    one = task(objective="masked")
    with pytest.raises(InputError, match=r"no \[MASK\] in 'the cat'; put it where a word is to be predicted"):
        one.make_predictor(small(one), CPU).fill("the cat", 3)
    with pytest.raises(InputError, match="the text has 68 tokens; this model takes at most 64; leave out what is far"):
        one.make_predictor(small(one), CPU).fill("[MASK]" + " cat" * 65, 3)
    bare = PretrainingTask(PretrainConfig(objective="none"), VOCABULARY)
    assert (one.verb, bare.verb) == ("fill", "embed")
    with pytest.raises(InputError, match="no head for masked words; it gives vectors"):
        bare.make_predictor(small(bare), CPU).fill("[MASK]", 3)
