"""Work that a model's few bytes ask for has a bound: windows of pools, and attributes of custom layers."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pool import MOST_TAPS

HUGE = 100_000


def pool(bench: Any, name: str, x: Any, **attributes: Any) -> Any:
    return bench.single(bench.op(name, **attributes), [x])


@pytest.mark.parametrize("name", ["AveragePool", "MaxPool", "LpPool"])
def test_windows_far_beyond_the_input(name: str, device: OpenCLDevice, bench: Any, rng: np.random.Generator) -> None:
    """Windows of 10^10 elements, all but 12 of them outside the input."""
    x = rng.standard_normal((1, 2, 3, 4)).astype(np.float32)
    pads = [HUGE - 3, HUGE - 4, HUGE - 3, HUGE - 4]
    graph, feeds = pool(bench, name, x, kernel_shape=[HUGE, HUGE], pads=pads, strides=[HUGE - 3, HUGE - 4])
    wide = x.astype(np.float64)
    first = {
        "AveragePool": wide.mean((2, 3)),
        "MaxPool": wide.max((2, 3)),
        "LpPool": np.sqrt((wide**2).sum((2, 3))),
    }[name]
    found = bench.run(device, graph, feeds)[0]
    np.testing.assert_allclose(found[:, :, 0, 0], first, rtol=1e-5)


def test_pads_that_count(device: OpenCLDevice, bench: Any) -> None:
    """The mean over 10^10 elements, more than an int counts."""
    x = np.full((1, 1, 3, 4), 1e10, np.float32)
    pads = [HUGE - 3, HUGE - 4, 0, 0]
    graph, feeds = pool(bench, "AveragePool", x, kernel_shape=[HUGE, HUGE], pads=pads, count_include_pad=True)
    np.testing.assert_allclose(bench.run(device, graph, feeds)[0], [[[[12]]]], rtol=1e-5)


@pytest.mark.parametrize("name", ["AveragePool", "MaxPool", "LpPool"])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_windows_across_the_border(name: str, dilation: int, device: OpenCLDevice, bench: Any, rng: np.random.Generator) -> None:
    """Every window against its elements, one by one; even and odd distances to the border."""
    x = rng.standard_normal((1, 1, 9)).astype(np.float32)
    graph, feeds = pool(bench, name, x, kernel_shape=[4], pads=[3, 3], dilations=[dilation])
    found = bench.run(device, graph, feeds)[0][0, 0]
    combine = {"AveragePool": np.mean, "MaxPool": np.max, "LpPool": lambda v: np.sqrt(np.sum(v**2))}[name]
    windows = [[o - 3 + k * dilation for k in range(4)] for o in range(9 + 6 - 3 * dilation)]
    taken = [np.array([x[0, 0, i] for i in w if 0 <= i < 9], np.float64) for w in windows]
    np.testing.assert_allclose(found, [combine(v) for v in taken], rtol=1e-5)


@pytest.mark.parametrize("name", ["AveragePool", "MaxPool", "LpPool"])
def test_too_many_elements_in_one_launch(name: str, device: OpenCLDevice, bench: Any) -> None:
    x = np.broadcast_to(np.float32(1), (1, 1, 1000, 1000))
    graph, _ = pool(bench, name, x, kernel_shape=[1000, 1000], pads=[500, 500, 499, 499])
    answer = device.supports(TypedNode.of(graph.nodes[0], graph))
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.SHAPE
    assert f"1000000 windows of 1000000 elements are {10**12} in one launch; accepted: at most {MOST_TAPS}" == answer.detail


def test_a_long_attribute_of_a_custom_layer() -> None:
    """A megabyte of digits with a letter at its end: the text is read once, not once for each digit."""
    text = """
from dovetail.errors import OperatorError
from dovetail_gpu_opencl.custom_layers.attributes import attribute_text
from dovetail_gpu_opencl.custom_layers.spec import Define
import dataclasses, inspect
fields = {name: "" for name in inspect.signature(Define).parameters}
for kind in ("float", "float[]", "int", "int[]", ""):
    define = Define(**{**fields, "name": "X", "param": "x", "type": kind})
    for value in ("1" * 1_000_000 + "!", "1." * 500_000 + "!", "1," * 500_000 + "!", "-" * 1_000_000 + "!"):
        try:
            attribute_text(define, value)
        except OperatorError:
            print("refused")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused"] * 20
