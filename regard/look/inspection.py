"""The result of ``model.look(...)``: the analyses of one text with their views, to show, save or read as data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regard.look.compute.text_analysis import TextAnalysis
from regard.look.render.page import render_iframe
from regard.look.render.save import check_output_path, holds_all_views, save_view, show_view
from regard.look.views import registry as views
from regard.look.views.request import ViewRequest
from regard.look.views.view_data import ViewData, merge_subwords


class Inspection(TextAnalysis):
    """A text analysis that can be shown in a notebook or terminal and saved as a page, figure or table."""

    def default_view(self, path: str | Path = "") -> str:
        """Return the view used if none is named: all in a page or JSON, else attention, pooling or gradients."""
        return "all" if holds_all_views(path) else views.default_view(self)

    def view_data(
        self,
        view: str = "all",
        *,
        words: bool = False,
        kind: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        estimate: int | None = None,
    ) -> ViewData:
        """Return the arrays of a view, or of all views.

        Args:
            view: "summary", "attention", "effective", "norms", "identifiability", "attribution", "similarity",
                "rollout", "gradients", "faithfulness", "pooling", "positions", or "all" that the model has.
            words: Merge subwords to words.
            kind: Only this attention, "encoder", "decoder" or "cross", or only this stack; by default all.
            layer: Only this layer, counted from 0; by default all.
            head: Only this head, counted from 0; by default all.
            estimate: Estimate attribution from this many random directions per token; by default it is exact.
        """
        request = ViewRequest(kind=kind, layer=layer, head=head, estimate=estimate, words=words)
        data = views.build_view_data(self, view, request)
        data = replace(data, about={**data.about, "merged": "words" if words else "tokens"})
        by_side = {name: side.words for name, side in self.look_target.sides.items()}
        return merge_subwords(data, by_side) if words else data

    def save(
        self,
        path: str | Path,
        view: str | None = None,
        *,
        words: bool = False,
        kind: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        estimate: int | None = None,
    ) -> Path:
        """Write a view in the format of the suffix: .html, .json, .csv, and with the extra `plot` .png, .svg or .pdf.

        Args:
            path: The file to write.
            view: The view; by default a page and JSON hold all of them, the other formats the default one.
            words, kind, layer, head, estimate: As in `view_data`.
        """
        chosen = view or self.default_view(path)
        check_output_path(path, views.available_views(self) if chosen == "all" else [chosen])
        return save_view(
            lambda: self.view_data(chosen, words=words, kind=kind, layer=layer, head=head, estimate=estimate), path
        )

    def show(
        self,
        view: str | None = None,
        *,
        words: bool = False,
        kind: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        estimate: int | None = None,
    ) -> None:
        """Show a view: the page in a notebook, a heat map in a terminal.

        Args:
            view: The view; by default the attention of the model, or the view nearest to it.
            words, kind, layer, head, estimate: As in `view_data`.
        """
        chosen = view or self.default_view()
        show_view(self.view_data(chosen, words=words, kind=kind, layer=layer, head=head, estimate=estimate))

    def __repr__(self) -> str:
        texts = [f"{self._metadata[name]!r}, " for name in ("text", "pair", "target") if name in self._metadata]
        return f"Inspection({''.join(texts)}attention: {', '.join(self.kinds) or 'none'})"

    def _repr_html_(self) -> str:
        return render_iframe(self.view_data(self.default_view()))
