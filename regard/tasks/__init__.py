"""The tasks, one file each; a new one is registered by its line here."""

from regard.tasks.task import Task
from regard.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {"translate": Translate}

__all__ = ["TASKS", "Task"]
