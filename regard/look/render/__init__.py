"""Rendering of views: interactive page, figures, terminal, JSON and CSV."""
