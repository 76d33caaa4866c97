"""Small questions and encoders for the tests of question answering."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from encoders import small

from regard.models.encoder import TransformerEncoder
from regard.tasks.qa import QuestionAnsweringTask

KINDS = {"city": ["tokyo", "oslo", "rome", "paris"], "animal": ["cat", "dog", "cow", "fox"]}


def questions(n: int, *, seed: int = 0, unanswered: float = 0.0) -> list[dict[str, Any]]:
    """Questions for the city or the animal of a sentence, some of which does not have it; half without a mark."""
    draw, found = random.Random(seed), []
    for _ in range(n):
        kind, other = draw.sample(sorted(KINDS), 2)
        is_answered = draw.random() >= unanswered
        parts = [f"a {draw.choice(KINDS[each])}" for each in ((kind, other) if is_answered else (other,))]
        draw.shuffle(parts)
        context = f"There is {' near '.join(parts).title()}."
        answer = next((word.title() for word in KINDS[kind] if word.title() in context), None)
        found.append(
            {
                "question": f"which {kind}{draw.choice(('', '?'))}",
                "context": context,
                "answers": [answer] if answer else [],
            }
        )
    return found


def write_questions(path: Path, entries: list[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return str(path)


def random_model(task: QuestionAnsweringTask, **shape: Any) -> TransformerEncoder:
    """An encoder with weights so large that its answers differ."""
    model, generator = small(task, **shape), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    return model
