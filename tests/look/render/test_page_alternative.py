"""The section of alternative attention on the page: two maps beside each other, and the distance in words."""

from __future__ import annotations

from page_driver import Mount
from sample_targets import one_stack

from regard.look.inspection import Inspection


def test_model_and_alternative_are_side_by_side_and_follow_the_chosen_head(mount: Mount) -> None:
    page = mount(Inspection(one_stack("encoder", 9)).view_data("alternative"))
    section = page.tab.locator("[data-view=alternative]")
    assert section.locator("figure.measure").count() == 2
    assert section.locator("h4").all_inner_texts() == ["Model", "Alternative"]
    page.tab.wait_for_function("document.querySelector('[data-view=alternative] .verdict').textContent.length > 0")
    assert section.locator(".verdict").inner_text().startswith("Total variation distance: ")
    before = section.locator("h3").inner_text()
    page.tab.keyboard.press("ArrowUp" if "layer 1" in before else "ArrowDown")
    assert section.locator("h3").inner_text() != before


def test_scores_have_a_section_with_an_explanation(mount: Mount) -> None:
    page = mount(Inspection(one_stack("decoder", 4)).view_data("scores"))
    text = page.tab.locator("[data-view=scores]").inner_text()
    assert "before the softmax" in text
    assert "6 of 16 cells are masked" in text
