"""Titles of arrays, and the absolute scale of those that have one, for every renderer."""

from __future__ import annotations

from regard.look.views.view_data import ViewArray

ARRAY_DESCRIPTIONS = {
    "summary.importance": "importance of each input to each output, by the most faithful view",
    "scores.scores": "scores before the mask and the softmax",
    "scores.masked_scores": "scores before the softmax, masked cells marked",
    "alternative.weights": "the model's weights",
    "alternative.alternative": "other weights with the same output",
    "alternative.distance": "total variation distance from the model's weights",
    "alternative.output_difference": "norm of the difference of the outputs",
    "norms.norms": "weights times the norm of the values",
    "identifiability.keys": "keys per query, at most",
    "identifiability.rank": "rank of the values",
    "identifiability.null": "dimensions of the null space of the weights",
    "identifiability.null_fraction": "fraction of the norm of the weights without effect",
    "attribution.contribution": "contribution of each input to each output",
    "attribution.error": "standard error of the contributions",
    "attribution.self_contribution": "contribution of each token to its own output",
    "attribution.dominated_fraction": "fraction of outputs dominated by another input",
    "similarity.eigenvalues": "eigenvalues of the symmetric part",
    "similarity.form": "the bilinear form M of x M y",
    "similarity.symmetric": "symmetric part of M",
    "similarity.antisymmetric": "antisymmetric part of M",
    "similarity.symmetric_fraction": "symmetric fraction",
    "similarity.positive": "1 where the form is a metric",
    "rollout.rollout": "each input in each output",
    "gradients.convergence_delta": "convergence delta of integrated gradients",
    "faithfulness.drop": "drop of the log-probability without the top k inputs",
    "faithfulness.score": "drop of the log-probability, mean over k",
    "pooling.weights": "weight of each token in the vector of the text",
    "pooling.sentences": "weight of each sentence in the vector of the text",
    "pooling.words": "weight of each token in the vector of its sentence",
    "positions.vectors": "added to each token",
    "match.evidence": "contribution of each pair to the cosine",
    "match.of_text": "contribution of the text to the cosine",
    "match.of_pair": "contribution of the pair to the cosine",
    "senses.distance": "1 - cosine between occurrences",
    "senses.mean": "1 - cosine, mean over pairs of occurrences",
    "senses.map": "occurrences along their first two principal components",
    "clusters.map": "texts along their first two principal components",
}
"""Descriptions of arrays whose name is not enough."""

FRACTION_ARRAYS = {
    *("identifiability.null_fraction", "similarity.symmetric_fraction", "alternative.distance"),
    *("attribution.contribution", "attribution.self_contribution", "attribution.dominated_fraction"),
}
"""Arrays of fractions, drawn on a scale from 0 to 1."""

UNIT_SCALE_ARRAYS = {*FRACTION_ARRAYS, "gradients.convergence_delta"}
"""Arrays whose bars are drawn against 1 or their largest value, if that is more: a small one must look small."""


def array_title(array: ViewArray) -> str:
    """Return the title of an array."""
    description = ARRAY_DESCRIPTIONS.get(f"{array.view}.{array.name}", array.name.replace("_", " "))
    return f"{array.kind} {array.view}: {description}".strip()


def is_fraction(array: ViewArray) -> bool:
    """Return True if the values are fractions of 1."""
    return f"{array.view}.{array.name}" in FRACTION_ARRAYS


def bar_limit(array: ViewArray) -> float:
    """Return the value of a full bar; 0 where the largest value is one."""
    return 1.0 if f"{array.view}.{array.name}" in UNIT_SCALE_ARRAYS else 0.0
