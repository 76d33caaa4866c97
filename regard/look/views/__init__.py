"""Views: named arrays over the tokens of a text, built from what look/compute computes."""
