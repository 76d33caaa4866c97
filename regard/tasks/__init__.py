"""The tasks, one file each; a new one implements the table at the top of task.py and is registered here."""

from regard.tasks.classify import ClassificationTask
from regard.tasks.embed import EmbeddingTask
from regard.tasks.lm import LanguageModelTask
from regard.tasks.pretrain import PretrainingTask
from regard.tasks.qa import QuestionAnsweringTask
from regard.tasks.tag import TaggingTask
from regard.tasks.task import Task
from regard.tasks.translate import TranslationTask
from regard.tasks.vectors import WordVectorTask

TASKS: dict[str, type[Task]] = {
    "translate": TranslationTask,
    "pretrain": PretrainingTask,
    "classify": ClassificationTask,
    "tag": TaggingTask,
    "qa": QuestionAnsweringTask,
    "embed": EmbeddingTask,
    "lm": LanguageModelTask,
    "vectors": WordVectorTask,
}

__all__ = ["TASKS", "Task"]
