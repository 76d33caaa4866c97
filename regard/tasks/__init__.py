"""The tasks, one file each; a new one is registered by its line here."""

from regard.tasks.classify import Classify
from regard.tasks.lm import Lm
from regard.tasks.pretrain import Pretrain
from regard.tasks.tag import Tag
from regard.tasks.task import Task
from regard.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    "translate": Translate,
    "pretrain": Pretrain,
    "classify": Classify,
    "tag": Tag,
    "lm": Lm,
}

__all__ = ["TASKS", "Task"]
