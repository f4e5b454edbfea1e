"""Fixtures: a browser, and models with sub-graphs and functions."""

import html
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail import GraphBuilder, Model
from dovetail.runtime import REFERENCE_DEVICE
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.softmax import Softmax

Browse = Callable[[Path, str, str], dict[str, Any]]


@pytest.fixture
def device() -> str:
    """A device that is installed."""
    return REFERENCE_DEVICE


@pytest.fixture
def chain() -> Model:
    """MatMul, Add, Relu, Softmax: what follows the product becomes its post-ops on devices that fuse."""
    rng = np.random.default_rng(3)
    g = GraphBuilder()
    x = g.input("x", "float32", (3, 4))
    product = g.node(MatMul(), x, g.constant(rng.standard_normal((4, 5)).astype(np.float32)), name="product")
    total = g.node(Add(), product, g.constant(rng.standard_normal(5).astype(np.float32)), name="total")
    return g.model([g.node(Softmax(), g.node(Relu(), total, name="positive"), name="shares")], "chain")


@pytest.fixture
def looping() -> Model:
    """A Loop whose body has a product and a Relu."""
    body = GraphBuilder()
    body.input("i", "int64", ())
    condition = body.node(Identity(), body.input("condition", "bool", ()), name="same")
    weights = body.constant(np.eye(3, dtype=np.float32) / 2)
    product = body.node(MatMul(), body.input("state", "float32", (3, 3)), weights, name="product")
    inner = body.graph([condition, body.node(Relu(), product, name="positive")], "body")
    g = GraphBuilder()
    count, x = g.input("count", "int64", ()), g.input("x", "float32", (3, 3))
    result = g.node(Loop(body=inner), count, "", x, name="loop")
    return g.model([g.node(Add(), result, result, name="twice")], "looping")


@pytest.fixture
def convolution() -> Model:
    """Conv and Relu over pictures of odd sizes."""
    rng = np.random.default_rng(4)
    g = GraphBuilder()
    weights = g.constant(rng.standard_normal((5, 3, 3, 3)).astype(np.float32))
    found = g.node(Conv(pads=(1, 1, 1, 1)), g.input("x", "float32", (2, 3, 7, 9)), weights, name="conv")
    return g.model([g.node(Relu(), found, name="positive")], "convolution")


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1400,900", "--dump-dom",
)  # fmt: skip


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """`browse(page, fragment, script)`: open the page, run the script, and return what it gives `report(value)`.

    CI installs a browser; elsewhere the tests that need one are skipped where there is none.
    """
    if BROWSER is None:
        if "DOVETAIL_CI" in os.environ:
            pytest.fail("CI has no browser")
        pytest.skip("no chromium on this machine")

    def run(page: Path, fragment: str, script: str) -> dict[str, Any]:
        tested = tmp_path / "tested.html"
        report = "const report = (value) => { document.body.dataset.report = JSON.stringify(value); };"
        # After the page's own script, which is the last element.
        watched = f"<script>{report}\ntry {{ {script} }} catch (error) {{ report({{ error: String(error.stack) }}); }}</script>"
        tested.write_text(page.read_text(encoding="utf-8").replace("</body>", watched + "</body>"), encoding="utf-8")
        command = [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", f"{tested.as_uri()}{fragment}"]
        dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        return _reported(dumped)

    return run


def _reported(dumped: str) -> dict[str, Any]:
    _, found, rest = dumped.partition('data-report="')
    assert found, f"the page reported nothing:\n{dumped[-2000:]}"
    value: dict[str, Any] = json.loads(html.unescape(rest.partition('"')[0]))
    assert "error" not in value, value["error"]
    return value
