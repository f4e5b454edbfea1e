"""Products round before sums take them, so that numbers which are quantized later are NumPy's to the last bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, Eltwise

SCALE = np.float32(0.0173)
"""No power of two: products of it have more bits than float32."""


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("quanta", [np.uint8, np.int8])
def test_a_dequantized_value_is_rounded_before_a_residual_is_added(
    quanta: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """All quanta, and residuals that bring the sum to where the next quantization rounds to even or not."""
    device = kind_device(kind)
    x = np.tile(np.arange(256).astype(quanta), 40).reshape(40, 256)
    zero = np.array(3, quanta)
    real = (x.astype(np.int32) - 3).astype(np.float32) * SCALE
    ties = (rng.integers(0, 200, x.shape) + np.float32(0.5)) * np.float32(0.021)
    residual = (ties - real).astype(np.float32)
    graph, feeds = bench.single(
        bench.op("DequantizeLinear"),
        [x, SCALE, zero],
        (1, 2),
        post_ops=[Binary("add", "r"), Eltwise("relu")],
        operands={"r": residual},
    )
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], np.maximum(real + residual, 0))


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_chains_round_each_step(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """In a chain alone, after another operator, and in an expression."""
    device = kind_device(kind)
    x, factor, shift = (rng.standard_normal((33, 65)).astype(np.float32) for _ in range(3))
    steps = [Binary("mul", "f"), Binary("add", "s"), Eltwise("linear", 0.3, 0.7)]
    graph, feeds = bench.single(bench.op("Add"), [x, x[::-1].copy()], post_ops=steps, operands={"f": factor, "s": shift})
    expected = np.float32(0.3) * ((x + x[::-1]) * factor + shift) + np.float32(0.7)
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], expected)
    graph, feeds = bench.single(bench.op("Mul"), [x, factor], post_ops=[Binary("sub", "s")], operands={"s": shift})
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], x * factor - shift)


@pytest.mark.parametrize("scale", [0.0173, 0.3, 0.021])
def test_quantized_values_at_ties(scale: float, device: Any, bench: Any) -> None:
    """Every quantum, the tie above it, and the floats beside both."""
    divisor, zero = np.float32(scale), np.array(7, np.uint8)
    middle = (np.arange(-20, 300, dtype=np.float32)[:, None] + np.array([0, 0.5], np.float32)) * divisor
    x = np.stack([np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf))])
    graph, feeds = bench.single(bench.op("QuantizeLinear"), [x, divisor, zero], (1, 2))
    expected = np.clip(np.rint(x / divisor) + 7, 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], expected)
