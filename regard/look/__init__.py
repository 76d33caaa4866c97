"""Views of what happens inside a model; built on taps, so any model of regard can be looked into."""
