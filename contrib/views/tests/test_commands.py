"""`dovetail graph` and `dovetail bench --html`, as a user calls them."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail import Model
from dovetail_views.bench_page import bench_page


@pytest.fixture
def file(tmp_path: Path, chain: Model) -> str:
    dovetail.Core().write_model(chain, tmp_path / "chain.pzkm")
    return "chain.pzkm"


def test_a_page_beside_the_working_folder(invoke: Any, file: str, tmp_path: Path) -> None:
    assert "Wrote chain.html." in invoke("graph", file, "-d", "NUMPY").stderr
    assert (tmp_path / "chain.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_graph_as_json_with_times(invoke: Any, file: str, tmp_path: Path) -> None:
    shown = json.loads(invoke("graph", file, "-d", "NUMPY", "--time", "--json").stdout)
    assert [node["name"] for node in shown["views"]["plan"]["nodes"]] == ["product", "shares"]
    assert all(node["time"] > 0 for node in shown["views"]["plan"]["nodes"])
    assert not (tmp_path / "chain.html").exists()


def test_a_folder_that_is_not_there(invoke: Any, file: str) -> None:
    assert "no/where" in invoke("graph", file, "-d", "NUMPY", "-o", "no/where/page.html", code=1).stderr


class Page(HTMLParser):
    """The tags of a page, which must all be closed, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not {"src", "href", "onclick"} & {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_benchmark_as_a_page(invoke: Any, file: str, tmp_path: Path) -> None:
    result = invoke("bench", file, "-d", "NUMPY", "-n", "7", "--no-roofline", "--html", "bench.html", "--json")
    (shown,) = json.loads(result.stdout)["devices"]
    assert (shown["device"], shown["steady"]["runs"], len(shown["samples"]), shown["peak"]) == ("NUMPY", 7, 7, None)
    assert set(shown["phases"]) == {"read", "passes", "compile", "first run"}
    assert [node["node"] for node in shown["nodes"]] == ["product", "shares"]
    # Product and bias are one Gemm: for each of 3 x 5 elements 4 multiplications, 4 additions and that of the bias.
    assert (shown["nodes"][0]["operator"], shown["nodes"][0]["flops"]) == ("Gemm", 3 * 5 * (2 * 4 + 1))
    page = Page((tmp_path / "bench.html").read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 1
    assert all(part in page.text for part in ("NUMPY", "product", "p99", "7"))


def device(name: str, samples: list[float]) -> dict[str, Any]:
    steady = dict.fromkeys(("mean", "p50", "p90", "p99", "fastest"), samples[0])
    node = {"node": "<i>", "operator": "Conv", "kernel": "a & b", "seconds": 2e-3, "flops": 4, "bytes": 8, "roofline": 1e-3}
    phases = {"read": 1e-3, "first run": 2e-3}
    steady |= {"runs": len(samples)}
    return {"device": name, "phases": phases, "steady": steady, "samples": samples, "peak": [1e9, 2e9], "nodes": [node]}


def test_devices_are_beside_each_other_on_one_scale() -> None:
    page = Page(bench_page({"model": "<b>.onnx", "devices": [device("A", [1e-3] * 9), device("B", [4e-3] * 3)]}))
    assert page.tags.count("svg") == 2
    assert page.text.count("4.00 ms") >= 2
    assert "<b>.onnx on A, B" in page.text
    assert "50%" in page.text  # half of the roofline
    # Nine runs of A in one bar, three of B in another.
    assert "9 runs, 1.00 ms to 1.01 ms" in page.text
    assert "3 runs, 3.95 ms to 4.00 ms" in page.text
    assert "1.00 ms2.00 ms4.00 ms" in page.text  # the scale is logarithmic


def test_percentiles_are_where_their_bars_are() -> None:
    told = device("A", [1e-3] * 98 + [4e-3] * 2)
    told["steady"] |= {"p50": 1e-3, "p90": 2e-3, "p99": 4e-3}
    lines = re.findall(r'<line x1="([0-9.]+)"', bench_page({"model": "m", "devices": [told]}))
    assert [float(x) for x in lines] == [10.0, 250.0, 490.0]


def test_a_device_without_nodes() -> None:
    without = {**device("A", [1e-3]), "nodes": [], "peak": None}
    assert "records no single nodes" in Page(bench_page({"model": "m", "devices": [without]})).text
