"""The page: numbers that come back from their bytes, one file that asks for nothing, and a browser that uses it."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sheets import HEAD, LAYER, sheet
from torch import Tensor

from regard.disk import json_text
from regard.look import page as module
from regard.look.page import PLAIN, SCRIPTS, Code, data, framed, page, script, style
from regard.look.view import Array, Axis, Sheet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("sandbox", "gpu", "quic", "background-networking", "component-update", "sync")
ARGUMENTS = ["--no-first-run", "--no-sandbox", *(f"--disable-{what}" for what in QUIET[1:])]
Mount = Callable[[Sheet], "Opened"]
OpenFile = Callable[..., "Opened"]
LARGEST = 20_000_000
"""Bytes that 300 tokens in 12 layers of 12 heads may take, raw and effective; as float32 they would be 104 million."""

HOSTILE = [
    "</script><script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>",
    "\"'&quot;<!--",
    "{{data}}",
    "שלום",
    "a\u202eb",
    "🏳️‍🌈",
    "<0xE2>",
    " ",
    "\n",
    "",
    "Donaudampfschifffahrtsgesellschaft" * 9,
]


@pytest.mark.parametrize(
    "numbers",
    [
        torch.rand(50, 50).softmax(-1),
        torch.randn(50, 50),
        -torch.rand(9),
        torch.tensor([1e-9, 3e-5, 0.4, -1e-3]),
        torch.tensor([-7e6, 2e8]),
        torch.zeros(3),
    ],
    ids=["weights", "signed", "below zero", "small", "large", "nothing"],
)
@pytest.mark.parametrize("bits", [8, 16])
def test_numbers_come_back_within_the_stated_error(numbers: Tensor, bits: int) -> None:
    values = numbers.numpy()
    code = Code.of([values], bits)
    codes = code.encode(values)
    assert codes.itemsize == bits // 8
    assert (codes < code.none).all()
    back = code.decode(codes)
    assert np.abs(back - values).max() <= code.error <= 2.1 * code.limit / (1 << bits)
    assert (back[values == 0] == 0).all()
    assert (np.sign(back) * np.sign(values) >= 0).all()


def test_small_weights_keep_their_size() -> None:
    """What is one in a thousand beside a weight of 1 is off by less than a tenth of itself."""
    values = np.array([1.0, 1e-3], dtype=np.float32)
    code = Code.of([values])
    assert abs(code.decode(code.encode(values))[1] - 1e-3) < 1e-4


def test_what_is_no_number_stays_none() -> None:
    values = np.array([0.5, np.nan, np.inf, -np.inf, -0.25], dtype=np.float32)
    code = Code.of([values])
    assert code.limit == 0.5
    assert np.isnan(code.decode(code.encode(values))).tolist() == [False, True, True, True, False]


def unpacked(record: dict[str, Any]) -> np.ndarray:
    """The numbers of an array of the page, read as the page reads them."""
    if "values" in record:
        return np.array(record["values"], dtype=np.float64).reshape(record["shape"])
    content = b"".join(zlib.decompress(base64.b64decode(block)) for block in record["blocks"])
    if "code" not in record:
        return np.frombuffer(content, "<u2").reshape(record["shape"])
    code = Code(**{name: record["code"][name] for name in ("limit", "levels", "zero", "bits")})
    return code.decode(np.frombuffer(content, f"<u{code.bits // 8}")).reshape(record["shape"])


def test_every_array_of_a_sheet_is_in_the_page() -> None:
    seen = sheet(source=24, target=21, n_layers=2, n_heads=9, estimate=True)
    records = data(seen)["arrays"]
    forms = set()
    for array, record in zip(seen.arrays, records, strict=True):
        form = "plain" if "values" in record else "rounded" if "code" in record else "counts"
        forms.add(form)
        assert (form == "plain") == (array.values.numel() <= PLAIN)
        error = record["code"]["error"] if form == "rounded" else 5e-5 * record["limit"]
        assert np.abs(unpacked(record) - array.values.double().numpy()).max() <= error * 1.0001
        assert len(record.get("blocks", "ab")) == 2
    assert forms == {"plain", "rounded"}


def test_only_matrices_over_tokens_are_kept_to_a_byte() -> None:
    text = ["a"] * 70
    over, along = Axis("query", ("encoder",)), Axis("dimension")
    arrays = [
        Array("attention", "encoder", "weights", (over, Axis("key", ("encoder",))), torch.rand(70, 70)),
        Array("positions", "encoder", "vectors", (over, along), torch.randn(70, 70)),
    ]
    matrix, vectors = data(Sheet({"encoder": text}, arrays))["arrays"]
    assert (matrix["code"]["bits"], vectors["code"]["bits"]) == (8, 16)
    assert np.abs(unpacked(vectors) - arrays[1].values.numpy()).max() < 2e-4


def test_counts_are_exact() -> None:
    counts = torch.arange(5000).view(2, 5, 500)
    array = Array("identifiability", "encoder", "keys", (LAYER, HEAD, Axis("query")), counts.float())
    (record,) = data(Sheet({}, [array]))["arrays"]
    assert "code" not in record
    assert (unpacked(record) == counts.numpy()).all()


def test_where_raw_and_effective_are_equal_they_stay_equal() -> None:
    """They share one code: an identifiable head has no difference, not even one of rounding."""
    seen = sheet(("encoder",), source=24, n_heads=9, width=24)
    found = {record["view"]: record for record in data(seen)["arrays"] if record["name"] == "weights"}
    raw, effective = (unpacked(found[view]) for view in ("attention", "effective"))
    assert "code" in found["attention"]
    assert found["attention"]["code"] == found["effective"]["code"]
    step = 2 / found["attention"]["code"]["levels"]  # of the square root; float32 may fall on either side of a half
    assert np.quantile(np.abs(raw - effective), 0.99) == 0
    assert np.abs(np.sqrt(raw) - np.sqrt(np.abs(effective))).max() < step


def test_the_page_is_one_file() -> None:
    text = page(sheet())
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)
    assert set(re.findall(r'\b(?:src|href)="([^"]*)"', text)) == {"data:,"}
    assert "default-src 'none'" in text
    assert "<noscript>" in text
    assert not re.search(r"\{\{\w+\}\}", text)


def test_the_script_only_ever_writes_text() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|fetch\(|XMLHttp|</", script())
    assert ".regard" in style()


def test_every_script_is_used() -> None:
    folder = Path(str(module.__file__)).with_suffix("")
    assert sorted(path.stem for path in folder.glob("*.js")) == sorted(SCRIPTS)


def test_texts_cannot_leave_their_place() -> None:
    seen = hostile()
    text = page(seen)
    assert text.count("</script") == 3
    packed = text.split('id="sheet">')[1].split("</script>")[0]
    assert json.loads(packed)["sides"][0]["tokens"] == HOSTILE
    assert json.loads(packed)["about"]["model"] == "</title><b>model</b>"


def test_a_notebook_gets_the_same_page_in_a_frame() -> None:
    seen = sheet(("encoder",))
    (inside,) = re.findall(r'srcdoc="([^"]*)"', framed(seen))
    assert html.unescape(inside) == page(seen)
    assert 'sandbox="allow-scripts"' in framed(seen)


class Opened:
    """A page that is open, what it asked for and what it complained about."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.asked: list[str] = []
        self.complaints: list[str] = []
        tab.on("request", lambda request: self.asked.append(request.url))
        tab.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))

    def state(self, name: str) -> str | None:
        found: str | None = self.tab.get_attribute("#look", f"data-{name}")
        return found

    def until(self, **state: object) -> None:
        """Wait until the page says so of itself."""
        self.tab.wait_for_selector("#look" + "".join(f'[data-{name}="{value}"]' for name, value in state.items()))

    def point(self, matrix: str, row: int, column: int, shape: tuple[int, int]) -> dict[str, float]:
        """Move the pointer to a cell; the numbers the page then shows, by name."""
        field = self.tab.locator(f'[data-matrix="{matrix}"]')
        field.scroll_into_view_if_needed()
        box = field.bounding_box()
        x, y = box["x"] + (column + 0.5) * box["width"] / shape[1], box["y"] + (row + 0.5) * box["height"] / shape[0]
        self.tab.mouse.move(x, y)
        lines = self.tab.locator(".tip:visible .tip-line").all_inner_texts()
        pairs = [line.split("\n") for line in lines]
        return {name: float(value.replace("−", "-")) for name, value in pairs if name != "at"}

    def pixels(self, matrix: str) -> np.ndarray:
        """The canvas of a matrix, (rows, columns, red green blue)."""
        return pixels_of(self.tab.locator(f'[data-matrix="{matrix}"]'))

    def marked(self, where: str) -> int:
        count: int = self.tab.locator(where).count()
        return count


def pixels_of(field: Any) -> np.ndarray:
    read = """field => { const { width, height } = field.querySelector("canvas");
        const { data } = field.querySelector("canvas").getContext("2d").getImageData(0, 0, width, height);
        return [height, width, Array.from(data, byte => String.fromCharCode(byte)).join("")]; }"""
    height, width, content = field.evaluate(read)
    return np.frombuffer(content.encode("latin-1"), np.uint8).reshape(height, width, 4)[..., :3].astype(int)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    play = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'regard[dev]'")
    if CHROMIUM is None:
        pytest.skip("needs a browser: no chromium, chromium-browser or google-chrome on the path")
    with play.sync_playwright() as started:
        yield (opened := started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS))
        opened.close()


@pytest.fixture
def open_file(browser: Any, tmp_path: Path) -> Iterator[OpenFile]:
    """Opens a page from its file; in the end, nothing may have been asked of the network, and nothing complained of."""
    contexts: list[Any] = []
    found: list[tuple[Opened, str]] = []

    def opens(text: str, *, width: int = 1600, scheme: str = "light", built: bool = True) -> Opened:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme))
        opened = Opened(contexts[-1].new_page())
        found.append((opened, path.as_uri()))
        opened.tab.goto(path.as_uri())
        if built:
            opened.until(built="true")
        return opened

    yield opens
    for opened, address in found:
        assert {url for url in opened.asked if not url.startswith(("data:", "about:"))} <= {address}
        assert opened.complaints == []
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def stage(browser: Any) -> Opened:
    """A page of somebody else, with the component in it."""
    opened = Opened(browser.new_page(viewport={"width": 1600, "height": 1000}, color_scheme="light"))
    opened.tab.set_content(f"<!doctype html><style>{style()}</style><div id=look></div><script>{script()}</script>")
    return opened


@pytest.fixture
def mount(stage: Opened) -> Iterator[Mount]:
    """Draws a sheet on the stage, in the place of the one before."""

    def mounts(seen: Sheet) -> Opened:
        stage.tab.bring_to_front()
        stage.tab.mouse.move(1, 1)
        swap = """packed => { if (window.seen) window.seen.destroy(); scrollTo(0, 0);
            window.seen = regardLook(document.getElementById("look"), packed); }"""
        stage.tab.evaluate(swap, json.loads(json_text(data(seen))))
        stage.until(built="true")
        return stage

    yield mounts
    assert stage.complaints == []


def array(seen: Sheet, view: str, kind: str, name: str = "weights") -> Tensor:
    return next(each.values for each in seen.of(view) if (each.kind, each.name) == (kind, name))


def close(shown: float, value: float, error: float = 1e-5) -> bool:
    """Is it the number, to the digits a page shows and the error it states?"""
    return abs(shown - value) <= 0.06 * abs(value) + error


def in_order(pixels: np.ndarray, values: np.ndarray) -> bool:
    """Is a larger number never lighter?"""
    light = pixels.sum(-1).ravel()[np.argsort(values.ravel())]
    return bool((np.maximum.accumulate(light[::-1])[::-1] - light <= 6).all())


def hostile() -> Sheet:
    seen = sheet(("encoder",), source=len(HOSTILE))
    about = {"model": "</title><b>model</b>", "text": "".join(HOSTILE), "difference": 1.0}
    return replace(seen, sides={"encoder": HOSTILE}, about=about, notes={"attention": HOSTILE})


@pytest.fixture(scope="module")
def whole() -> Sheet:
    return sheet()


def test_a_click_chooses_a_head(mount: Mount, whole: Sheet) -> None:
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


def test_keys_choose_layer_head_and_kind(mount: Mount, whole: Sheet) -> None:
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


def test_arrows_go_from_cell_to_cell_in_a_matrix(mount: Mount, whole: Sheet) -> None:
    opened = mount(whole)
    opened.tab.focus("[data-matrix=raw]")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        opened.tab.keyboard.press(key)
    assert opened.state("layer") == "0"
    lines = opened.tab.locator(".tip .tip-line").all_inner_texts()
    value = float(dict(line.split("\n") for line in lines)["raw"])
    assert close(value, float(array(whole, "attention", "encoder")[0, 0, 1, 1]))


def test_raw_effective_and_difference_alone_or_together(mount: Mount, whole: Sheet) -> None:
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


def test_a_token_is_marked_in_every_view(mount: Mount, whole: Sheet) -> None:
    opened = mount(whole)
    opened.tab.hover(".strip-row:nth-child(1) [data-index='2']")
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


def test_the_slider_goes_through_the_layers(mount: Mount, whole: Sheet) -> None:
    opened = mount(whole)
    panel = '[data-panel=attribution][data-stack="decoder"]'
    opened.tab.locator(panel).scroll_into_view_if_needed()
    share = array(whole, "attribution", "decoder", "share")
    slider = opened.tab.locator("[data-view=attribution] input[type=range]:visible")
    for key, layer in (("End", 2), ("Home", 0), ("ArrowRight", 1)):
        slider.press(key)
        opened.tab.wait_for_selector(f'{panel}[data-layer="{layer}"]')
        shown = opened.tab.locator(panel).locator("[data-matrix]").first
        assert in_order(pixels_of(shown), share[layer].mT.numpy())
    assert opened.tab.get_attribute('[data-panel=rollout][data-stack="decoder"]', "data-layer") == "1"
    assert opened.state("layer") == "0"
    assert "layer 1" in opened.tab.locator(panel).locator(".heat-title").inner_text()


def test_light_and_dark(mount: Mount, whole: Sheet) -> None:
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


def test_it_begins_as_light_or_dark_as_the_system(open_file: OpenFile, whole: Sheet) -> None:
    for scheme in ("dark", "light"):
        opened = open_file(page(whole), scheme=scheme)
        assert opened.state("theme") == scheme
        assert opened.tab.title() == "look: the old pilot who had landed in <eos>"


def test_help_is_a_key_away(mount: Mount, whole: Sheet) -> None:
    opened = mount(whole)
    opened.tab.keyboard.press("?")
    opened.tab.wait_for_selector("dialog[open]")
    opened.tab.keyboard.press("Escape")
    opened.tab.wait_for_selector("dialog", state="hidden")


def test_whoever_cannot_see_it_can_hear_it(mount: Mount, whole: Sheet) -> None:
    opened = mount(whole)
    unnamed = """() => [...document.querySelectorAll("button, input, [role=img], [role=group]")]
        .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label"))).length"""
    assert opened.tab.evaluate(unnamed) == 0
    opened.tab.keyboard.press("ArrowRight")
    opened.until(head=1)
    assert opened.tab.inner_text("[role=status]") == "encoder · layer 0, head 1"


def test_hostile_texts_do_no_harm(open_file: OpenFile) -> None:
    for width in (1600, 390):
        opened = open_file(page(hostile()), width=width)
        assert opened.tab.evaluate("window.harmed") is None
        assert opened.marked("img") + opened.marked(".regard script") == 0
        assert opened.tab.locator(".strip .token").nth(0).inner_text() == HOSTILE[0]
        assert opened.tab.locator(".strip .token").nth(10).inner_text() == "∅"
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width


KINDS = ("encoder", "decoder", "cross")


@pytest.mark.parametrize("kinds", [some for count in (1, 2, 3) for some in combinations(KINDS, count)], ids="-".join)
def test_every_set_of_kinds_works(mount: Mount, kinds: tuple[str, ...]) -> None:
    seen = sheet(kinds, n_layers=2, n_heads=2)
    opened = mount(seen)
    for kind in kinds:
        opened.until(kind=kind)
        weights = array(seen, "attention", kind)[0, 0]
        shown = opened.point("raw", 1, 1, (weights.shape[0], weights.shape[1]))
        assert close(shown["raw"], float(weights[1, 1]))
        opened.tab.keyboard.press("k")


def test_every_view_works_alone(mount: Mount, whole: Sheet) -> None:
    for view in dict.fromkeys(each.view for each in whole.arrays):
        opened = mount(replace(whole, arrays=list(whole.of(view)), notes={}, about={}))
        name = "attention" if view == "effective" else view
        assert opened.tab.locator("section.view").evaluate_all("all => all.map(e => e.dataset.view)") == [name]
    assert "nothing to see" in mount(replace(whole, arrays=[])).tab.inner_text(".views")


def test_a_view_nobody_knows_is_a_matrix(mount: Mount, whole: Sheet) -> None:
    values = torch.randn(3, 2, 8, 8)
    values[1, 1, 0, 0] = float("nan")
    axes = (LAYER, Axis("way", labels=("there", "back")), Axis("query", ("encoder",)), Axis("key", ("encoder",)))
    curve = torch.tensor([1.0, float("nan"), -2.0, 4.0])
    odd = [Array("new", "encoder", "numbers", axes, values), Array("odd", "", "curve", (Axis("step"),), curve)]
    opened = mount(replace(whole, arrays=[*whole.of("attention"), *odd]))
    opened.tab.locator("[data-view=odd]").scroll_into_view_if_needed()
    opened.tab.wait_for_selector("[data-view=odd] rect")
    assert opened.marked("[data-view=odd] rect") == 3
    for slider in opened.tab.locator("[data-view=new] input").all():
        slider.press("ArrowRight")
    opened.tab.wait_for_selector('[aria-label$="layer 1, way back"]')
    assert close(opened.point("new.encoder.numbers", 2, 3, (8, 8))["numbers"], float(values[1, 1, 2, 3]))
    opened.tab.mouse.move(5, 5)
    box = opened.tab.locator('[data-matrix="new.encoder.numbers"]').bounding_box()
    opened.tab.mouse.move(box["x"] + 4, box["y"] + 4)
    assert "no number" in opened.tab.inner_text(".tip")


def test_one_layer_and_one_head_keep_their_numbers(mount: Mount, whole: Sheet) -> None:
    """A sheet may hold but layer 2 and head 3; they are still called so."""
    arrays = []
    for each in whole.arrays:
        values, axes = each.values, list(each.axes)
        for name, number in (("layer", 2), ("head", 3)):
            if (place := each.axis(name)) >= 0:
                values = values.index_select(place, torch.tensor([number]))
                axes[place] = Axis(name, labels=(str(number),))
        arrays.append(replace(each, values=values, axes=tuple(axes)))
    opened = mount(replace(whole, arrays=arrays))
    opened.until(layer=2, head=3)
    assert opened.tab.inner_text("[data-view=attention] h3") == "encoder · layer 2, head 3"
    assert close(opened.point("raw", 1, 1, (8, 8))["raw"], float(array(whole, "attention", "encoder")[2, 3, 1, 1]))
    assert opened.tab.locator("[data-view=attribution] output:visible").inner_text() == "2"


def test_a_damaged_page_says_so(open_file: OpenFile) -> None:
    text = page(sheet(("encoder",), source=30, n_heads=8))
    block = re.search(r'"blocks": \["([^"]{200})', text)
    assert block is not None
    opened = open_file(text.replace(block[1], "A" * 200), built=False)
    opened.tab.wait_for_selector(".trouble:visible")
    assert "could not be drawn" in opened.tab.inner_text(".trouble")
    assert opened.complaints
    opened.complaints.clear()


def test_a_notebook_shows_it(open_file: OpenFile, whole: Sheet) -> None:
    opened = open_file(f"<!doctype html><p>In [1]:</p>{framed(whole)}", built=False)
    inside = opened.tab.frame_locator("iframe")
    inside.locator("#look[data-built=true]").wait_for()
    assert inside.locator("#look").get_attribute("data-layer") == "0"


@pytest.fixture(scope="module")
def large() -> Sheet:
    return sheet(("encoder",), source=300, n_layers=12, n_heads=12, width=64)


def test_three_hundred_tokens_and_144_heads(open_file: OpenFile, large: Sheet) -> None:
    text = page(large)
    size = len(text.encode())
    assert size < LARGEST
    opened = open_file(text, width=1700)
    assert f"This page is {size / 1e6:.1f} MB" in opened.tab.inner_text(".footer")
    opened.tab.click('[data-heads=overview] [data-layer="11"][data-head="4"]')
    opened.until(layer=11, head=4)
    raw, effective = (array(large, view, "encoder")[11, 4] for view in ("attention", "effective"))
    error = float(next(record["code"]["error"] for record in data_of(text) if record["view"] == "effective"))
    pixels = opened.pixels("raw")
    assert pixels.shape == (300, 300, 3)
    darkest = pixels.sum(-1).argmin(-1)
    assert (raw[range(300), darkest] >= raw.max(-1).values - 2 * error).all()
    for query, key in ((150, 149), (299, 0), (7, 290)):
        shown = opened.point("raw", query, key, (300, 300))
        assert close(shown["raw"], float(raw[query, key]), error)
        assert close(shown["effective"], float(effective[query, key]), error)
    assert "strongest of" in opened.tab.locator(".lines-said").nth(0).inner_text()
    opened.tab.wait_for_function("document.querySelectorAll('[data-heads=overview] [data-drawn]').length === 144")


def data_of(text: str) -> list[dict[str, Any]]:
    """The arrays in a page."""
    found: list[dict[str, Any]] = json.loads(text.split('id="sheet">')[1].split("</script>")[0])["arrays"]
    return found
