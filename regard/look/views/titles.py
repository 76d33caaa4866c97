"""What the numbers of an array are, in words: for the titles of every way of showing."""

from __future__ import annotations

from regard.look.views.view_data import ViewArray

ARRAY_DESCRIPTIONS = {
    "norms.norms": "weights times the length of what they carry",
    "identifiability.keys": "keys that a query sees, at most",
    "identifiability.rank": "rank of what they carry",
    "identifiability.null": "dimensions of weights that do not show",
    "identifiability.share": "share of the weights' norm that does not show",
    "attribution.share": "share of each input in each output",
    "attribution.error": "standard error of the share of each input",
    "attribution.own_share": "share of itself in each output",
    "attribution.strayed": "share with more of another input",
    "similarity.eigenvalues": "eigenvalues of the symmetric part",
    "similarity.form": "the form M of x M y",
    "similarity.symmetric": "symmetric part of M",
    "similarity.antisymmetric": "antisymmetric part of M",
    "similarity.mutual": "share that is mutual",
    "similarity.positive": "1 where it is a metric",
    "rollout.rollout": "each input in each output",
    "gradients.gap": "what integrated gradients do not account for",
    "faithfulness.drop": "log-probability lost without the first k inputs",
    "faithfulness.score": "log-probability lost, mean over k",
    "pooling.weights": "how much each token counts in the vector of the text",
    "positions.vectors": "added to each token",
    "match.evidence": "what each pair adds to the cosine",
    "match.of_text": "what the text adds to the cosine",
    "match.of_pair": "what the pair adds to the cosine",
    "senses.distance": "1 - cosine between occurrences",
    "senses.mean": "1 - cosine, mean over pairs of occurrences",
    "senses.map": "occurrences in the plane in which they differ most",
    "clusters.map": "texts in the plane in which they differ most",
}
"""What the numbers of an array are, where its name does not say it."""

FRACTION_ARRAYS = {
    *("identifiability.share", "similarity.mutual"),
    *("attribution.share", "attribution.own_share", "attribution.strayed"),
}
"""Arrays of shares: they are drawn against 1, not against the largest of them."""


def array_title(array: ViewArray) -> str:
    """What an array is, for a reader."""
    said = ARRAY_DESCRIPTIONS.get(f"{array.view}.{array.name}", array.name.replace("_", " "))
    return f"{array.kind} {array.view}: {said}".strip()


def is_fraction(array: ViewArray) -> bool:
    """Whether its numbers are shares of one."""
    return f"{array.view}.{array.name}" in FRACTION_ARRAYS
