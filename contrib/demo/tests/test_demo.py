"""`dovetail demo`: on the devices of this machine, with a device that fails or computes wrongly, and without the op pack."""

import re
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from numpy.typing import NDArray

import dovetail
from dovetail.device import Accepted, Device, DeviceInfo, Refusal, TypedNode
from dovetail.runtime import REFERENCE_DEVICE, NodePlacement
from dovetail_demo import art, measure

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """The elements of a page; raises when tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.declaration = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_decl(self, decl: str) -> None:
        self.declaration = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def classed(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Throughput from a few runs."""
    monkeypatch.setattr(measure, "_BATCH_SECONDS", 0.01)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> dovetail.Core:
    """The Core that the command will use, for tests that add something to it."""
    core = dovetail.Core()
    monkeypatch.setattr(dovetail, "Core", lambda: core)
    return core


def test_every_device_reads_the_digits(invoke_json: InvokeJson, tmp_path: Path) -> None:
    """All held-back pictures on all devices, and everything on the page."""
    shown = invoke_json("demo", "--html", "page.html")
    assert set(shown) == {"version", "images", "reference", "devices", "available", "missing", "plugins", "page"}
    assert shown["images"] == 360
    assert [d["device"] for d in shown["devices"]] == dovetail.Core().available_devices
    for device in shown["devices"]:
        assert device["error"] is None
        assert device["accuracy"] == device["correct"] / 360 > 0.95
        assert len(device["wrong"]) == 360 - device["correct"]
        assert device["training_difference"] < 1e-4
        assert device["max_difference"] < 1e-4
        assert device["max_difference"] == 0 or device["device"] != shown["reference"]
        assert device["latency"]["runs"] == 360
        assert device["images_per_second"] > 0
        assert {n["operator"] for n in device["custom_nodes"]} == {"tim.vx::HSwish"}
        assert all(n["kernel"] and n["provider"] and n["device"] for n in device["custom_nodes"])
    _check_page(Page((tmp_path / "page.html").read_text(encoding="utf-8")), shown)


def _check_page(page: Page, shown: dict[str, Any]) -> None:
    assert page.declaration.lower() == "doctype html"
    assert {"lang": "en"} in page.attributes("html")
    assert len(page.tables) == 4
    results, custom, devices, plugins = page.tables
    assert [row[0] for row in results[1:]] == [d["device"] for d in shown["devices"]]
    assert [row[1] for row in results[1:]] == ["agrees"] * len(shown["devices"])
    assert {row[0] for row in custom[1:]} == {d["device"] for d in shown["devices"]}
    assert [row[0] for row in devices[1:]] == [d["name"] for d in shown["available"]] + [m["device"] for m in shown["missing"]]
    assert [row[0] for row in plugins[1:]] == [p["distribution"] for p in shown["plugins"]]
    wrong = shown["devices"][0]["wrong"]
    images = page.attributes("img")
    assert len(images) == shown["images"] + len(wrong)
    assert all((image["src"] or "").startswith("data:image/png;base64,") and image["alt"] for image in images)
    assert len(page.classed("wrong")) == len(wrong)
    assert len(page.classed("measure")) == len(shown["devices"])
    assert len(page.classed("bar")) == len(shown["devices"]) + 3 * len(wrong)
    assert shown["version"] in page.text


def test_the_page_needs_nothing_from_outside(invoke: Invoke, tmp_path: Path) -> None:
    invoke("demo", "--images", 3)
    text = (tmp_path / "dovetail-demo.html").read_text(encoding="utf-8")
    page = Page(text)
    sources = [value or "" for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert all(source.startswith("data:") for source in sources)
    assert not re.search(r"https?:|//|url\(|@import|<script", re.sub(r'src="data:[^"]*"', "", text))
    assert "prefers-color-scheme: dark" in text
    assert "CC BY 4.0" in page.text


def test_tables_in_the_terminal(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("demo", "--images", 5, "--no-html")
    assert list(tmp_path.iterdir()) == []
    for name in dovetail.Core().available_devices:
        assert re.search(rf"^ {re.escape(name)} +(80.00|100.00)% ", result.stdout, re.MULTILINE)
        # Nodes that were merged into several kernels have several rows.
        nodes = re.findall(rf"^ {re.escape(name)} +tim.vx::HSwish +(\d) ", result.stdout, re.MULTILINE)
        assert sum(map(int, nodes)) == 4
    assert result.stdout.count("read ") >= 4
    assert "██" in result.stdout
    assert "The report page" not in result.stderr


# --- devices that fail ----------------------------------------------------------------------------------------------------


def add_device(core: dovetail.Core, name: str, open_device: Callable[..., Any]) -> None:
    """Register a device in this process. `open_device(info)` opens it."""

    @dovetail.hookimpl
    def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
        return [DeviceInfo(name, name, "NPU", "<b>made up</b> & more")]

    @dovetail.hookimpl
    def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Any:
        return open_device(info)

    plugin = SimpleNamespace(
        dovetail_api="1.0", dovetail_device_info=dovetail_device_info, dovetail_device_open=dovetail_device_open
    )
    core.plugins.register(plugin, name=f"fake-{name.lower()}", kind="devices", key=name.lower())


def test_a_device_that_fails_is_shown_and_the_others_go_on(
    invoke_json: InvokeJson, session: dovetail.Core, tmp_path: Path
) -> None:
    def refuse(info: DeviceInfo) -> Any:
        raise OSError("<script>no such driver</script>")

    add_device(session, "BAD", refuse)
    shown = invoke_json("demo", "--images", 4, code=1)
    by_name = {d["device"]: d for d in shown["devices"]}
    assert "no such driver" in by_name["BAD"]["error"]
    assert by_name["BAD"]["latency"] is None
    assert by_name[REFERENCE_DEVICE]["error"] is None
    assert by_name[REFERENCE_DEVICE]["correct"] == 4
    text = (tmp_path / "dovetail-demo.html").read_text(encoding="utf-8")
    assert "<script" not in text
    page = Page(text)
    assert f"1 of {len(by_name)} devices failed" in page.text
    assert "<script>no such driver</script>" in page.text
    assert "<b>made up</b> & more" in page.text
    assert ["BAD", "failed"] in [row[:2] for row in page.tables[0]]


class Wrong(Device):
    """The reference device, whose executables add to every result."""

    def __init__(self, info: DeviceInfo, inner: Device) -> None:
        self.info = info
        self._inner = inner

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        return self._inner.supports(node)

    def compile(self, graph: Any, options: Mapping[str, Any]) -> Any:
        executable = self._inner.compile(graph, options)
        create = executable.create_request

        def create_request() -> Any:
            request = create()
            run = request.run

            def wrong(inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
                return [output + np.float32(0.01) for output in run(inputs)]

            request.run, request.fresh = wrong, False
            return request

        executable.create_request = create_request
        return executable


def test_a_device_that_computes_wrongly_fails(invoke: Invoke, session: dovetail.Core) -> None:
    add_device(session, "WRONG", lambda info: Wrong(info, session.plugins.open_device(REFERENCE_DEVICE, {})))
    result = invoke("demo", "--images", 4, "--no-html", code=1)
    assert f"WRONG failed: its probabilities differ from those of {REFERENCE_DEVICE} by 0.01; at most 0.0001" in result.stdout
    assert re.search(r"^ WRONG +(75.00|100.00)% ", result.stdout, re.MULTILINE)


def test_a_broken_device_plugin_fails_the_demo(invoke: Invoke, session: dovetail.Core) -> None:
    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_device_info=None, dovetail_device_open=None)
    with pytest.raises(dovetail.DovetailError):
        session.plugins.register(plugin, name="fake-broken", kind="devices", key="broken")
    result = invoke("demo", "--images", 2, "--no-html", code=1)
    assert re.search(r"^ BROKEN +failed ", result.stdout, re.MULTILINE)


def test_a_page_that_cannot_be_written_leaves_the_results(invoke: Invoke) -> None:
    result = invoke("demo", "--images", 2, "--html", "no/such/folder.html", code=1)
    assert "Results" in result.stdout
    assert "no/such/folder.html" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_device_is_told_and_fails(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dovetail.Core, "devices", ())
    result = invoke("demo", "--images", 2, code=1)
    assert "No device is available" in result.stderr
    assert "No device is available" in Page((tmp_path / "dovetail-demo.html").read_text(encoding="utf-8")).text


def test_without_the_op_pack_the_domain_and_pip_line_are_named(
    invoke: Invoke, session: dovetail.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tuple(r for r in session.plugins.records() if r.kind != "ops")
    monkeypatch.setattr(session.plugins, "records", lambda: records)
    result = invoke("demo", code=1)
    assert "operator domain 'tim.vx'" in result.stderr
    assert "pip install dovetail-ops-tim-vx" in result.stderr


# --- parts ----------------------------------------------------------------------------------------------------------------


def digits(*labels: int) -> measure.Digits:
    images = np.zeros((len(labels), 8, 8), np.uint8)
    images[:, 0] = [0, 2, 4, 8, 10, 12, 14, 16]
    return measure.Digits(images, np.array(labels), np.zeros((len(labels), 10), np.float32))


def result_reading(*read: int) -> measure.DeviceResult:
    probabilities = np.full((len(read), 10), 0.01, np.float32)
    probabilities[np.arange(len(read)), read] = 0.91
    return measure.DeviceResult("ANY", probabilities=probabilities)


def test_art_shows_shades_and_a_misread_picture() -> None:
    text = art.show_digits(digits(1, 2, 3, 4, 5, 6), result_reading(1, 2, 3, 4, 5, 0))
    lines = text.splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) <= 80
    assert lines[0].count("░░░░▒▒▓▓▓▓████") == 4  # 0 2 4 8 10 12 14 16 in five shades
    assert re.split(" {4,}", lines[-2]) == ["read 1 (91.0%)", "read 2 (91.0%)", "read 3 (91.0%)", "read 0 (91.0%)"]
    assert re.split(" {4,}", lines[-1]) == ["right", "right", "right", "wrong: it is 6"]


def test_art_for_terminals_without_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding="ascii"))
    assert art.show_digits(digits(1), result_reading(1)).isascii()


def test_merged_and_folded_nodes_are_told() -> None:
    node = SimpleNamespace(name="act", op=SimpleNamespace(key="com.acme::Act"))
    conv = NodePlacement("conv", "Conv", "ANY.0", "direct", "pack 1", origins=("conv", "act"), post_ops=("eltwise",))
    merged = measure._who_ran(node, [NodePlacement("other", "Relu", "ANY.0", "ref", "pack 1", origins=("other",)), conv])
    assert (merged.kernel, merged.provider, merged.merged_into) == ("direct", "pack 1", "Conv")
    assert measure._who_ran(node, []).kernel == "folded while planning"


def test_nan_counts_as_the_largest_difference() -> None:
    assert measure._difference(np.array([0.5, np.nan]), np.array([0.5, 0.5])) == np.inf
    assert measure._difference(np.array([0.5, 0.25]), np.array([0.5, 0.5])) == 0.25
