"""Which results may be those on the other side of a border between two quanta: what docs/how-to/lower_precision.md says.

Expected values are the standard's formulas: in float32, one rounding for each operator, or in float64 where no border is near.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import AbstractOperator, GraphBuilder
from dovetail_ops_onnx import find

Array = NDArray[Any]

DEVICES = ("NUMPY", "ONEDNN", "OPENCL")
ROUNDING = 2.0**-24
"""Of one operation in float32, relative to its result."""

SHAPE = (1, 16, 64, 64)
CHANNELS = 16
PAIRS = np.indices((256, 256), np.uint8).reshape(2, *SHAPE)
"""All pairs of stored numbers."""


def op(name: str, **attributes: Any) -> AbstractOperator:
    return find(name, 17)(**attributes)


@dataclass(frozen=True)
class Scale:
    """One scale and zero point of uint8, and the formulas with them."""

    scale: np.float32
    zero: np.uint8

    @staticmethod
    def drawn(rng: np.random.Generator, like: float | None = None) -> "Scale":
        scale = 2.0 ** rng.uniform(-7, -3) if like is None else like * rng.uniform(0.5, 1.2)
        return Scale(np.float32(scale), np.uint8(rng.integers(60, 190)))

    def real(self, stored: Array, dtype: Any = np.float32) -> Array:
        return (stored.astype(dtype) - dtype(self.zero)) * dtype(self.scale)

    def stored(self, real: Array) -> Array:
        return np.clip(np.rint(real / self.scale) + np.float32(self.zero), 0, 255).astype(np.uint8)

    def near(self, real: Array, size: Array, roundings: int) -> Array:
        """Where so many roundings of numbers as large as `size` (real) may cross a border."""
        steps = real / np.float64(self.scale)
        to_half = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
        found: Array = to_half <= roundings * ROUNDING * (size / np.float64(self.scale) + float(self.zero))
        return found


class Net:
    def __init__(self) -> None:
        self.g = GraphBuilder()

    def real(self, name: str, scale: Scale) -> str:
        return self.dequantized(self.g.input(name, "uint8", SHAPE), scale)

    def node(self, name: str, *values: str, **attributes: Any) -> str:
        return self.g.node(op(name, **attributes), *values)

    def dequantized(self, stored: str, scale: Scale) -> str:
        return self.node("DequantizeLinear", stored, self.g.constant(scale.scale), self.g.constant(scale.zero))

    def quantized(self, real: str, scale: Scale) -> str:
        return self.node("QuantizeLinear", real, self.g.constant(scale.scale), self.g.constant(scale.zero))

    def run(self, device: str, y: str, *images: Array) -> Array:
        with dovetail.Core(config=False).compile_model(self.g.model([y]), device) as compiled:
            feeds = dict(zip(compiled.inputs, images, strict=False))  # "x", and "y" where the graph has it
            return np.asarray(next(iter(compiled(feeds).values())))


def check(found: Array, want: Array, near: Array) -> None:
    """`want` away from borders, and never more than one step from it."""
    np.testing.assert_array_equal(found[~near], want[~near])
    assert np.abs(found.astype(int) - want).max() <= 1
    assert near.mean() < 0.02  # which leaves something to compare


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param not in {found.type for found in dovetail.Core(config=False).devices}:
        pytest.skip(f"{request.param} is not there: `dovetail devices` says why")
    if request.param == "ONEDNN" and not pytest.importorskip("dovetail_cpu_onednn.library").library().has_int8:
        pytest.skip("this CPU has no instructions for 8-bit products")
    return str(request.param)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stored", [True, False])
def test_real_numbers_at_halves(stored: bool, seed: int, device: str) -> None:
    """A quotient by the scale, with even and odd zero points: a product with its reciprocal misses many halves."""
    rng = np.random.default_rng(seed)
    a, net = Scale.drawn(rng), Net()
    c = Scale(np.float32(a.scale * rng.choice([2, 0.8, 1.2])), np.uint8(a.zero + seed))
    halves = ((rng.integers(-100, 100, SHAPE) + 0.5) * c.scale).astype(np.float32)
    real = a.real(PAIRS[0]) if stored else halves
    x = net.real("x", a) if stored else net.g.input("x", "float32", SHAPE)
    padded = net.node("Pad", x, net.g.constant(np.int64([0, 0, 1, 1, 0, 0, 1, 1])), mode="reflect")
    found = net.run(device, net.quantized(padded, c), PAIRS[0] if stored else real)
    np.testing.assert_array_equal(found, c.stored(np.pad(real, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_all_pairs(name: str, seed: int, device: str) -> None:
    """By NUMPY and OPENCL as the operators say; by ONEDNN except at borders."""
    rng = np.random.default_rng(seed)
    a, b = Scale.drawn(rng), Scale.drawn(rng)
    c = Scale.drawn(rng, a.scale + b.scale if name == "Add" else 64 * a.scale * b.scale)
    net, function = Net(), np.add if name == "Add" else np.multiply
    found = net.run(device, net.quantized(net.node(name, net.real("x", a), net.real("y", b)), c), *PAIRS)
    want = c.stored(function(a.real(PAIRS[0]), b.real(PAIRS[1])))
    if device != "ONEDNN":
        np.testing.assert_array_equal(found, want)
        return
    x, y = (one.real(image, np.float64) for one, image in zip((a, b), PAIRS, strict=True))
    zeros = [float(one.zero) * float(one.scale) for one in (a, b)]  # oneDNN subtracts them behind the sum
    size = np.abs(x) + zeros[0] + np.abs(y) + zeros[1] if name == "Add" else (np.abs(x) + zeros[0]) * (np.abs(y) + zeros[1])
    check(found, want, c.near(function(x, y), size, 8))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("chain", ["Conv", "Conv Add", "Conv QuantizeLinear Add"])
def test_convolutions(chain: str, seed: int, device: str) -> None:
    """OPENCL rounds a sum of products once; the other chains and devices hold except at borders."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (2, *SHAPE), np.uint8)
    a, b, between, c = (Scale.drawn(rng) for _ in range(4))
    weights, units = rng.integers(-127, 128, (CHANNELS, CHANNELS), np.int8), rng.uniform(0.002, 0.01, CHANNELS).astype(np.float32)

    def product(left: Array, right: Array) -> Array:
        return np.tensordot(left * units.astype(np.float64)[:, None], right, (1, 1)).swapaxes(0, 1)

    x, y = (one.real(image, np.float64) for one, image in zip((a, b), images, strict=True))
    real, size = product(weights.astype(np.float64), x), product(np.abs(weights.astype(np.float64)), np.abs(x))
    roundings = 8 + (CHANNELS if device == "NUMPY" else 0)  # which adds in float32
    net = Net()
    w = net.node("DequantizeLinear", net.g.constant(weights[:, :, None, None]), net.g.constant(units), axis=0)
    value, near = net.node("Conv", net.real("x", a), w), np.zeros(SHAPE, bool)
    if "QuantizeLinear" in chain:
        value, near = net.dequantized(net.quantized(value, between), between), between.near(real, size, roundings)
        real = between.real(between.stored(real), np.float64)
        size = np.abs(real)
    if "Add" in chain:
        value, real = net.node("Add", value, net.real("y", b)), real + y
        size = size + np.abs(y) + float(b.zero) * float(b.scale)  # oneDNN subtracts that first
    found, want = net.run(device, net.quantized(value, c), *images), c.stored(real)
    if chain == "Conv" and device == "OPENCL":
        np.testing.assert_array_equal(found, want)
    else:
        # A number on the other side of the first border may be several steps of the second quantization away.
        kept = ~near
        check(found[kept], want[kept], c.near(real, size, roundings)[kept])
