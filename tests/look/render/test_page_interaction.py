"""The page in use: keys, clicks and the pointer choose, mark and go through what it shows."""

from __future__ import annotations

from page_driver import Mount, array, close, in_order, pixels_of

from regard.look.views.view_data import ViewData


def test_a_click_chooses_a_head(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    assert [opened.state(name) for name in ("kind", "layer", "head", "measure")] == ["encoder", "0", "0", "all"]
    for layer, head in ((0, 0), (2, 3), (1, 0)):
        opened.tab.click(f'[data-heads=overview] [data-layer="{layer}"][data-head="{head}"]')
        opened.until(layer=layer, head=head)
        raw, effective = (array(whole, view, "encoder")[layer, head] for view in ("attention", "effective"))
        assert in_order(opened.pixels("raw"), raw.numpy())
        for query, key in ((0, 0), (5, 2)):
            shown = opened.point("effective", query, key, (8, 8))
            assert close(shown["raw"], float(raw[query, key]))
            assert close(shown["effective"], float(effective[query, key]))
            assert close(shown["difference"], float(raw[query, key] - effective[query, key]), 0.01)


def test_keys_choose_layer_head_and_kind(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        opened.tab.keyboard.press(key)
    opened.until(layer=2, head=1)  # of three layers the last stays the last
    assert in_order(opened.pixels("raw"), array(whole, "attention", "encoder")[2, 1].numpy())
    opened.tab.keyboard.press("k")
    opened.tab.keyboard.press("k")
    opened.until(kind="cross", layer=2, head=1)
    weights = array(whole, "attention", "cross")[2, 1]
    assert close(opened.point("raw", 3, 5, (7, 8))["raw"], float(weights[3, 5]))
    chosen = opened.tab.locator("[data-heads=overview] [aria-pressed=true]")
    assert chosen.get_attribute("aria-label") == "layer 2, head 1"
    chosen.focus()
    opened.tab.keyboard.press("ArrowUp")
    opened.until(layer=1)
    focused = opened.tab.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "layer 1, head 1"


def test_arrows_go_from_cell_to_cell_in_a_matrix(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    opened.tab.focus("[data-matrix=raw]")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        opened.tab.keyboard.press(key)
    assert opened.state("layer") == "0"
    lines = opened.tab.locator(".tip .tip-line").all_inner_texts()
    value = float(dict(line.split("\n") for line in lines)["raw"])
    assert close(value, float(array(whole, "attention", "encoder")[0, 0, 1, 1]))


def test_raw_effective_and_difference_alone_or_together(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)

    def shown() -> list[str]:
        columns = opened.tab.locator(".measures > .measure:visible")
        return [column.get_attribute("data-measure") for column in columns.all()]

    assert shown() == ["raw", "effective", "difference"]
    for key, measure in (("r", "raw"), ("e", "effective"), ("d", "difference")):
        opened.tab.keyboard.press(key)
        opened.until(measure=measure)
        assert shown() == [measure]
    opened.tab.keyboard.press("d")
    opened.until(measure="all")
    opened.tab.click(".headline [data-value=effective]")
    opened.until(measure="effective")
    assert shown() == ["effective"]
    before = opened.pixels("effective")
    opened.tab.keyboard.press("ArrowRight")
    opened.until(head=1)
    opened.tab.keyboard.press("s")
    assert opened.tab.get_attribute(".switch", "aria-pressed") == "true"
    assert (opened.pixels("effective") != before).any()


def test_a_token_is_marked_in_every_view(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    opened.tab.locator("[data-view=attention]").evaluate("section => section.scrollIntoView()")
    opened.tab.hover(".strip-row:nth-child(1) [data-index='2']")
    opened.tab.wait_for_selector("[data-measure=difference] .band.row", state="attached")
    for measure in ("raw", "effective", "difference"):
        inside = f"[data-measure={measure}]"
        assert opened.marked(f"{inside} .band.row") == 1
        assert opened.marked(f"{inside} .band.column") == 1
        assert opened.tab.locator(f"{inside} .line-token.on").all_inner_texts() == ["▁pilot", "▁pilot"]
    opened.point("raw", 3, 4, (8, 8))
    assert opened.tab.locator(".strip .token.on").all_inner_texts() == ["▁who", "▁had"]
    assert opened.marked("[data-measure=effective] .band") == 2
    opened.tab.mouse.move(5, 5)
    assert opened.marked(".strip .token.on") + opened.marked(".band") == 0

    opened.tab.click(".strip-row:nth-child(1) [data-index='6']")
    opened.tab.mouse.move(5, 5)
    assert opened.tab.locator(".strip .token.pinned").all_inner_texts() == ["▁in"]
    for view in ("attribution", "rollout", "gradients", "positions"):
        opened.tab.locator(f"[data-view={view}]").scroll_into_view_if_needed()
        opened.tab.wait_for_selector(f"[data-view={view}] .band", state="attached")
    assert opened.marked("[data-view=gradients] .heat-token.on") == 1
    opened.tab.keyboard.press("Escape")
    opened.tab.wait_for_selector("[data-view=positions] .band", state="detached")


def test_the_slider_goes_through_the_layers(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    panel = '[data-panel=attribution][data-stack="decoder"]'
    opened.tab.locator(panel).scroll_into_view_if_needed()
    contributions = array(whole, "attribution", "decoder", "contribution")
    slider = opened.tab.locator("[data-view=attribution] input[type=range]:visible")
    for key, layer in (("End", 2), ("Home", 0), ("ArrowRight", 1)):
        slider.press(key)
        opened.tab.wait_for_selector(f'{panel}[data-layer="{layer}"]')
        shown = opened.tab.locator(panel).locator("[data-matrix]").first
        assert in_order(pixels_of(shown), contributions[layer].mT.numpy())
    assert opened.tab.get_attribute('[data-panel=rollout][data-stack="decoder"]', "data-layer") == "1"
    assert opened.state("layer") == "0"
    assert "layer 1" in opened.tab.locator(panel).locator(".heat-title").inner_text()


def test_light_and_dark(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    paper = "getComputedStyle(document.getElementById('look')).backgroundColor"
    light, painted = opened.tab.evaluate(paper), opened.pixels("raw")
    opened.tab.keyboard.press("t")
    opened.until(theme="dark")
    assert opened.tab.evaluate(paper) != light
    assert opened.pixels("raw").mean() < 128 < painted.mean()
    opened.tab.click("[data-do=theme]")
    opened.until(theme="light")
    assert (opened.pixels("raw") == painted).all()


def test_help_is_a_key_away(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    opened.tab.keyboard.press("?")
    opened.tab.wait_for_selector("dialog[open]")
    opened.tab.keyboard.press("Escape")
    opened.tab.wait_for_selector("dialog", state="hidden")


def test_screen_readers_get_labels_and_status(mount: Mount, whole: ViewData) -> None:
    opened = mount(whole)
    unnamed = """() => [...document.querySelectorAll("button, input, [role=img], [role=group]")]
        .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label"))).length"""
    assert opened.tab.evaluate(unnamed) == 0
    opened.tab.keyboard.press("ArrowRight")
    opened.until(head=1)
    assert opened.tab.inner_text("[role=status]") == "encoder · layer 0, head 1"
