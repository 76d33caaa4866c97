"""The run directory: recipe schema, opening and saving a model; used by training and inference alike."""
