"""Weights of few bits with scales in float16, as NNCF compresses them: computed in float32, as OpenVINO does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13

RNG = np.random.default_rng(21)
BITS = {"u4": 4, "i4": 4, "nf4": 4, "u2": 2, "u3": 3, "u6": 6, "u8": 8, "i8": 8}


def stored(kind: str, *shape: int) -> Any:
    """A constant with random codes."""
    bits = BITS[kind]
    count = int(np.prod(shape)) * bits // 8
    packed = RNG.integers(0, 256, count).astype(np.uint8)
    return opset13.constant(ov.Tensor(packed, ov.Shape(list(shape)), getattr(ov.Type, kind)))


def weights(kind: str, zero_points: bool) -> Any:
    """[16, 32] in groups of 16 with a scale each, in float16."""
    value = opset13.convert(stored(kind, 16, 2, 16), "f16")
    if zero_points:
        value = opset13.subtract(value, opset13.convert(stored(kind, 16, 2, 1), "f16"))
    scale = opset13.constant(RNG.uniform(0.01, 0.2, (16, 2, 1)).astype(np.float16))
    return opset13.reshape(opset13.multiply(value, scale), opset13.constant(np.array([16, 32])), False)


def product(weight: Any) -> tuple[Any, Any]:
    x = opset13.parameter([5, 32], np.float32, name="x")
    return x, opset13.matmul(x, opset13.convert(weight, "f32"), False, True)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize(
    ("kind", "zero_points"),
    [("u4", True), ("i4", False), ("nf4", False), ("u2", True), ("u8", True), ("u3", True), ("u6", False)],
)
def test_decompression_is_not_rounded(kind: str, zero_points: bool, device: str, saved: Any, agree: Callable[..., Any]) -> None:
    """Rounding the weights to float16 would change the result by more than 1e-4."""
    x, y = product(weights(kind, zero_points))
    feed = RNG.standard_normal((5, 32)).astype(np.float32)
    agree(saved(ov.Model([y], [x], kind)), [feed], rtol=1e-5, device=device)


def test_what_is_read_as_float16_too_stays_float16(saved: Any, core: Any) -> None:
    weight = weights("i8", True)
    x, y = product(weight)
    read = core.read_model(saved(ov.Model([y, opset13.result(weight)], [x], "m")))
    found = core.compile_model(read, "NUMPY")([np.eye(5, 32, dtype=np.float32)])
    half = found[1]
    assert half.dtype == np.float16
    np.testing.assert_array_equal(found[0], half[:, :5].T.astype(np.float32))


def test_a_constant_by_an_input_is_that_of_float16(saved: Any, core: Any) -> None:
    """1/3 is rounded to float16; the product is converted to float32 unrounded, as everything between nodes of halves."""
    x = opset13.parameter([2, 3], np.float16, name="x")
    third = opset13.constant(np.float16([[1 / 3]]))
    read = core.read_model(saved(ov.Model([opset13.convert(opset13.multiply(x, third), "f32")], [x], "m")))
    feed = RNG.standard_normal((2, 3)).astype(np.float16)
    expected = feed.astype(np.float32) * np.float32(np.float16(1 / 3))
    np.testing.assert_array_equal(core.compile_model(read, "NUMPY")([feed])[0], expected)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(
    ("kind", "size", "zero_points"), [("u4", 64, True), ("i4", 256, False), ("u8", 256, True), ("i8", 256, False)]
)
def test_large_matrices_and_tables_stay_packed(
    kind: str, size: int, zero_points: bool, rows: int, device: str, saved: Any, agree: Callable[..., Any], core: Any
) -> None:
    """As NNCF writes a decoder: the same table for the embedding and the last product."""
    blocks = 256 // size
    dims = (301, blocks, size) if blocks > 1 else (301, 256)
    value = opset13.convert(stored(kind, *dims), "f16")
    if zero_points:
        value = opset13.subtract(value, opset13.convert(stored(kind, *dims[:-1], 1), "f16"))
    scale = opset13.constant(RNG.uniform(0.01, 0.2, (*dims[:-1], 1)).astype(np.float16))
    weight = opset13.multiply(value, scale)
    if blocks > 1:
        weight = opset13.reshape(weight, opset13.constant(np.array([301, 256])), False)
    table = opset13.convert(weight, "f32")
    ids = opset13.parameter([1, rows], np.int64, name="ids")
    embedded = opset13.gather(table, ids, opset13.constant(np.int64(0)))
    path = saved(ov.Model([opset13.matmul(embedded, table, False, True)], [ids], kind))
    agree(path, [RNG.integers(0, 301, (1, rows))], rtol=1e-4, device=device)
    with core.compile_model(core.read_model(path), device) as compiled:
        compiled([np.zeros((1, rows), np.int64)])
        kinds = [node.op for node in compiled.report().nodes]
    assert any(kind.startswith("dovetail::MatMul") for kind in kinds)
    assert "MatMul" not in kinds


@pytest.mark.parametrize(("kind", "count"), [("u3", 8), ("u3", 13), ("u6", 4), ("u6", 5)])
def test_elements_that_are_split_over_bytes(kind: str, count: int, saved: Any, agree: Callable[..., Any]) -> None:
    """Three bytes hold 8 elements of 3 bits, or 4 of 6: not a whole number of groups, too."""
    tensor = ov.Tensor(getattr(ov.Type, kind), ov.Shape([count]))
    packed = RNG.integers(0, 256, tensor.byte_size).astype(np.uint8)
    value = opset13.constant(ov.Tensor(packed, ov.Shape([count]), getattr(ov.Type, kind)))
    x = opset13.parameter([count], np.float32, name="x")
    agree(saved(ov.Model([opset13.add(x, opset13.convert(value, "f32"))], [x], kind)), [np.zeros(count, np.float32)])
