"""The page as a file: numbers that come back from their bytes, and one text that asks for nothing.

In a browser it is used in test_page_interaction.py; test_page_views.py draws every view.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_view_data import HEAD, HOSTILE, LAYER, hostile, make_view_data
from torch import Tensor

from regard.look.render import page as module
from regard.look.render.page import (
    MAX_PLAIN_VALUES,
    SCRIPT_FILES,
    Quantizer,
    build_page_data,
    bundle_script,
    read_stylesheet,
    render_iframe,
    render_page,
)
from regard.look.views.view_data import Axis, ViewArray, ViewData


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
    code = Quantizer.fit([values], bits)
    codes = code.encode(values)
    assert codes.itemsize == bits // 8
    assert (codes < code.nan_code).all()
    back = code.decode(codes)
    assert np.abs(back - values).max() <= code.max_error <= 2.1 * code.limit / (1 << bits)
    assert (back[values == 0] == 0).all()
    assert (np.sign(back) * np.sign(values) >= 0).all()


def test_small_weights_keep_their_size() -> None:
    """What is one in a thousand beside a weight of 1 is off by less than a tenth of itself."""
    values = np.array([1.0, 1e-3], dtype=np.float32)
    code = Quantizer.fit([values])
    assert abs(code.decode(code.encode(values))[1] - 1e-3) < 1e-4


def test_nan_stays_nan() -> None:
    values = np.array([0.5, np.nan, np.inf, -np.inf, -0.25], dtype=np.float32)
    code = Quantizer.fit([values])
    assert code.limit == 0.5
    assert np.isnan(code.decode(code.encode(values))).tolist() == [False, True, True, True, False]


def unpacked(record: dict[str, Any]) -> np.ndarray:
    """The numbers of an array of the page, read as the page reads them."""
    if "values" in record:
        return np.array(record["values"], dtype=np.float64).reshape(record["shape"])
    content = b"".join(zlib.decompress(base64.b64decode(block)) for block in record["blocks"])
    if "code" not in record:
        return np.frombuffer(content, "<u2").reshape(record["shape"])
    code = Quantizer(**{name: record["code"][name] for name in ("limit", "levels", "zero", "bits")})
    return code.decode(np.frombuffer(content, f"<u{code.bits // 8}")).reshape(record["shape"])


def test_every_array_of_a_sheet_is_in_the_page() -> None:
    seen = make_view_data(source=24, target=21, n_layers=2, n_heads=9, estimate=True)
    records = build_page_data(seen)["arrays"]
    forms = set()
    for array, record in zip(seen.arrays, records, strict=True):
        form = "plain" if "values" in record else "rounded" if "code" in record else "counts"
        forms.add(form)
        assert (form == "plain") == (array.values.numel() <= MAX_PLAIN_VALUES)
        error = record["code"]["error"] if form == "rounded" else 5e-5 * record["limit"]
        assert np.abs(unpacked(record) - array.values.double().numpy()).max() <= error * 1.0001
        assert len(record.get("blocks", "ab")) == 2
    assert forms == {"plain", "rounded"}


def test_only_matrices_over_tokens_are_kept_to_a_byte() -> None:
    text = ["a"] * 70
    over, along = Axis("query", ("encoder",)), Axis("dimension")
    arrays = [
        ViewArray("attention", "encoder", "weights", (over, Axis("key", ("encoder",))), torch.rand(70, 70)),
        ViewArray("positions", "encoder", "vectors", (over, along), torch.randn(70, 70)),
    ]
    matrix, vectors = build_page_data(ViewData({"encoder": text}, arrays))["arrays"]
    assert (matrix["code"]["bits"], vectors["code"]["bits"]) == (8, 16)
    assert np.abs(unpacked(vectors) - arrays[1].values.numpy()).max() < 2e-4


def test_counts_are_exact() -> None:
    counts = torch.arange(5000).view(2, 5, 500)
    array = ViewArray("identifiability", "encoder", "keys", (LAYER, HEAD, Axis("query")), counts.float())
    (record,) = build_page_data(ViewData({}, [array]))["arrays"]
    assert "code" not in record
    assert (unpacked(record) == counts.numpy()).all()


def test_whole_numbers_below_zero_are_no_counts() -> None:
    numbers = torch.arange(-2500, 2500).view(2, 5, 500)
    array = ViewArray("scores", "encoder", "scores", (LAYER, HEAD, Axis("query")), numbers.float())
    (record,) = build_page_data(ViewData({}, [array]))["arrays"]
    assert "code" in record
    assert np.abs(unpacked(record) - numbers.numpy()).max() <= record["code"]["error"] * 1.0001


def test_where_raw_and_effective_are_equal_they_stay_equal() -> None:
    """They share one code: an identifiable head has no difference, not even one of rounding."""
    seen = make_view_data(("encoder",), source=24, n_heads=9, width=24)
    found = {record["view"]: record for record in build_page_data(seen)["arrays"] if record["name"] == "weights"}
    raw, effective = (unpacked(found[view]) for view in ("attention", "effective"))
    assert "code" in found["attention"]
    assert found["attention"]["code"] == found["effective"]["code"]
    step = 2 / found["attention"]["code"]["levels"]  # of the square root; float32 may fall on either side of a half
    assert np.quantile(np.abs(raw - effective), 0.99) == 0
    assert np.abs(np.sqrt(raw) - np.sqrt(np.abs(effective))).max() < step


def test_the_page_is_one_file() -> None:
    text = render_page(make_view_data())
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)
    assert set(re.findall(r'\b(?:src|href)="([^"]*)"', text)) == {"data:,"}
    assert "default-src 'none'" in text
    assert "<noscript>" in text
    assert not re.search(r"\{\{\w+\}\}", text)


def test_the_script_only_ever_writes_text() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|fetch\(|XMLHttp|</", bundle_script()
    )
    assert ".regard" in read_stylesheet()


def test_every_script_is_used() -> None:
    folder = Path(str(module.__file__)).with_suffix("")
    assert sorted(path.stem for path in folder.glob("*.js")) == sorted(SCRIPT_FILES)


def test_texts_cannot_close_the_script() -> None:
    seen = hostile()
    text = render_page(seen)
    assert text.count("</script") == 3
    packed = text.split('id="view-data">')[1].split("</script>")[0]
    assert json.loads(packed)["sides"][0]["tokens"] == HOSTILE
    assert json.loads(packed)["about"]["model"] == "</title><b>model</b>"


def test_a_notebook_gets_the_same_page_in_a_frame() -> None:
    seen = make_view_data(("encoder",))
    (inside,) = re.findall(r'srcdoc="([^"]*)"', render_iframe(seen))
    assert html.unescape(inside) == render_page(seen)
    assert 'sandbox="allow-scripts"' in render_iframe(seen)
