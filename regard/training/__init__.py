"""Training: from a recipe to a trained run directory."""
