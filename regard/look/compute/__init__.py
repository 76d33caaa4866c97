"""Quantities computed from one text in one model: tensors in, tensors out."""
