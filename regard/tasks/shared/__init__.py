"""Building blocks that several tasks share; the tasks themselves are the files one level up."""
