"""HSwish against its formula in float64, by itself and on every device that is installed."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import REFERENCE_KERNEL
from dovetail.errors import OperatorError
from dovetail.graph import DType, GraphBuilder, Model, TensorType
from dovetail.op import OpenCLKernel, Operator, UnboundOperator
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_tim_vx.cases.h_swish import EVERY_BYTE, QUANTIZED, formula
from dovetail_ops_tim_vx.h_swish import HSwish

SCALARS = ({}, {"input_scale": 0.7, "input_tail": -1.25, "output_scale": 3.5, "output_zero_point": 2.0})
SHAPES = ((), (1,), (7,), (0, 3), (2, 3, 5, 7), (1, 1, 1, 1, 1, 3))
# One rounding at the end leaves half a unit in the last place; 4 units leave room for float32's own rounding errors on the way.
TYPES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-6, "float64": 1e-12}

rng = np.random.default_rng(20)


def draw(shape: tuple[int, ...], dtype: str = "float32") -> NDArray[Any]:
    """Values on both sides of both corners of the curve."""
    return np.asarray(rng.uniform(-6, 6, shape)).astype(DType(dtype).numpy)


def model_of(op: Operator, x: NDArray[Any]) -> Model:
    g = GraphBuilder()
    model = g.model([g.node(op, g.input("x", DType.of(x.dtype), x.shape), name="custom", outputs=["y"])])
    return dataclasses.replace(model, opsets={"tim.vx": 1})


@pytest.mark.parametrize("scalars", SCALARS, ids=("plain", "scaled"))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_reference_follows_the_formula(dtype: str, shape: tuple[int, ...], scalars: dict[str, float]) -> None:
    op, x = HSwish(**scalars), draw(shape, dtype)
    y = op.reference(x)
    assert (y.dtype, y.shape) == (x.dtype, shape)
    np.testing.assert_allclose(y.astype(np.float64), formula(x, op), rtol=TYPES[dtype], atol=TYPES[dtype])


def test_known_values() -> None:
    x = np.array([-4, -3, -1.5, 0, 1.5, 3, 4], np.float32)
    np.testing.assert_allclose(HSwish().reference(x), [0, 0, -0.375, 0, 1.125, 3, 4], atol=1e-7)


def test_nan_and_overflow_give_no_warning() -> None:
    y = HSwish().reference(np.array([np.nan, np.inf, 6e4], np.float16))
    np.testing.assert_array_equal(y, np.array([np.nan, np.inf, 6e4], np.float16))
    assert HSwish(output_scale=2).reference(np.array([6e4], np.float16)) == np.inf


def test_inputs_are_only_read() -> None:
    base = draw((5, 4))
    for x in (base, base.T, base[::-2, ::3]):
        x.flags.writeable = False
        before = x.copy()
        y = HSwish().reference(x)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_allclose(y, formula(x, HSwish()), rtol=1e-6, atol=1e-6)
        assert not np.shares_memory(x, y)


def test_output_type_is_the_input_type_without_its_value() -> None:
    known = TensorType.of(draw((2, 3)), known=True)
    y = HSwish().infer(known)
    assert y == known
    assert y.value is None


def test_name_and_attributes() -> None:
    op = HSwish.from_attributes({"input_scale": 2, "output_zero_point": 1.5})
    assert op.key == "tim.vx::HSwish"
    assert op.stem == "h_swish"
    assert op.describe() == "input_scale=2.0, output_zero_point=1.5"


@pytest.mark.parametrize(
    ("attributes", "message"), [({"input_scael": 1.0}, "Did you mean 'input_scale'"), ({"input_tail": "0"}, "accepted: float")]
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        HSwish.from_attributes(attributes)


def test_integers_are_refused() -> None:
    with pytest.raises(OperatorError, match="int32; accepted: bfloat16, float16, float32, float64, uint8"):
        HSwish.check([TensorType(DType.INT32, (2,))], 1)
    with pytest.raises(OperatorError, match="'output_dtype' is int8; accepted: bfloat16"):
        HSwish(output_dtype=DType.INT8)


def test_kernel_source_matches_the_operator() -> None:
    (kernel,) = HSwish.kernels
    assert isinstance(kernel, OpenCLKernel)
    for dtype in (DType.FLOAT32, DType.FLOAT16, DType.UINT8):
        assert f"__kernel void {kernel.entry_for(dtype)}(" in kernel.source
    assert kernel.entry_for(DType.FLOAT64) is None
    assert [name for name, _ in kernel.scalars] == [name for name in HSwish.attributes if name != "output_dtype"]


@pytest.mark.parametrize("scalars", SCALARS, ids=("plain", "scaled"))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("device", ["NUMPY", "OPENCL"])
def test_devices_follow_the_formula(device: str, dtype: str, shape: tuple[int, ...], scalars: dict[str, float]) -> None:
    op, x = HSwish(**scalars), draw(shape, dtype)
    y = dovetail.Core().compile_model(model_of(op, x), device)({"x": x})["y"]
    assert (y.dtype, y.shape) == (x.dtype, shape)
    np.testing.assert_allclose(y.astype(np.float64), formula(x, op), rtol=TYPES[dtype], atol=TYPES[dtype])


def test_the_pack_is_found_by_its_domain_and_brings_the_opencl_kernel() -> None:
    op, x = HSwish(input_scale=0.5), draw((2, 3, 5, 7))
    read = UnboundOperator("tim.vx", "HSwish", 1, {"input_scale": 0.5})
    compiled = dovetail.Core().compile_model(model_of(read, x), "OPENCL")
    np.testing.assert_allclose(compiled({"x": x})["y"], formula(x, op), rtol=1e-6, atol=1e-6)
    (placement,) = compiled.report().nodes
    assert placement.op == "tim.vx::HSwish"
    assert placement.device.startswith("OPENCL")
    assert placement.provider.startswith("dovetail-ops-tim-vx ")


def test_read_only_and_strided_inputs_on_devices() -> None:
    x = draw((6, 10))[::2, ::-3]
    x.flags.writeable = False
    core = dovetail.Core()
    for device in ("NUMPY", "OPENCL"):
        y = core.compile_model(model_of(HSwish(), x), device)({"x": x})["y"]
        np.testing.assert_allclose(y, formula(x, HSwish()), rtol=1e-6, atol=1e-6)


QUANTIZED_OP = HSwish(**QUANTIZED)


def test_every_byte_to_bytes(device: str, execute: Any) -> None:
    (y,) = execute(QUANTIZED_OP, [EVERY_BYTE], device).outputs
    expected = np.clip(np.rint(formula(EVERY_BYTE, QUANTIZED_OP)), 0, 255)
    assert y.dtype == np.uint8
    assert (y.min(), y.max()) == (8, 255)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("target", ["float32", "float16", "float64", "bfloat16"])
def test_bytes_to_floats(device: str, execute: Any, target: str) -> None:
    op = dataclasses.replace(QUANTIZED_OP, output_dtype=DType(target))
    (y,) = execute(op, [EVERY_BYTE], device).outputs
    assert y.dtype == DType(target).numpy
    tolerance = TYPES[target] if target != "float64" else 1e-6
    np.testing.assert_allclose(y.astype(np.float64), formula(EVERY_BYTE, op), rtol=tolerance, atol=1e-4)


@pytest.mark.parametrize("source", ["float32", "float16", "float64", "bfloat16"])
def test_floats_to_bytes(device: str, execute: Any, source: str) -> None:
    x = (np.arange(-6, 12, 0.0625) + 0.01).astype(DType(source).numpy)
    op = HSwish(output_scale=25.0, output_zero_point=10.0, output_dtype=DType.UINT8)
    (y,) = execute(op, [x], device).outputs
    expected = np.clip(np.rint(formula(x, op)), 0, 255)
    assert y.dtype == np.uint8
    # A sum just beside a half may be rounded either way.
    assert np.max(np.abs(y - expected)) <= 1
    assert np.mean(y != expected) < 0.02


def test_bytes_are_rounded_half_to_even_and_saturate(device: str, execute: Any) -> None:
    x = np.float32([3.5, 4.5, 5.5, 1e9, -3, np.nan, np.inf])
    (y,) = execute(HSwish(output_dtype=DType.UINT8), [x], device).outputs
    np.testing.assert_array_equal(y, [4, 4, 6, 255, 0, 0, 255])
    (below,) = execute(HSwish(output_dtype=DType.UINT8, output_zero_point=-9.0), [x], device).outputs
    np.testing.assert_array_equal(below, [0, 0, 0, 255, 0, 0, 255])


@pytest.mark.parametrize("target", ["float32", "uint8"])
@pytest.mark.parametrize("source", ["float32", "uint8"])
def test_the_opencl_kernel_runs_every_mixture(execute: Any, source: str, target: str) -> None:
    x = np.arange(12).astype(DType(source).numpy)
    (node,) = execute(HSwish(output_dtype=DType(target)), [x], "OPENCL").report.nodes
    assert node.device.startswith("OPENCL")
    assert node.kernel != REFERENCE_KERNEL


@pytest.mark.parametrize("scalars", SCALARS, ids=("plain", "scaled"))
@pytest.mark.parametrize("fusion", [True, False])
def test_behind_a_product(device: str, scalars: dict[str, float], fusion: bool) -> None:
    """Merged where the device fuses it, by a kernel of the device or of the class elsewhere; never by the reference."""
    op, x, wei = HSwish(**scalars), draw((5, 7)), draw((7, 9))
    g = GraphBuilder()
    product = g.node(MatMul(), g.input("x", "float32", x.shape), g.constant(wei), name="product")
    with dovetail.Core().compile_model(g.model([g.node(op, product, name="custom")]), device, {"FUSION": fusion}) as compiled:
        got, (*_, last) = compiled([x])[0], compiled.report().nodes
    np.testing.assert_allclose(got, formula(x.astype(np.float64) @ wei, op), rtol=1e-4, atol=1e-4)
    assert last.kernel != REFERENCE_KERNEL
    assert last.origins == (("product", "custom") if fusion else ("custom",))


@pytest.mark.parametrize("types", [("uint8", None), ("uint8", "float32"), ("float32", "float16"), ("float32", "uint8")])
def test_bytes_and_changes_of_type_are_no_chain(types: tuple[str, str | None]) -> None:
    source, target = types
    op = HSwish(output_dtype=None if target is None else DType(target))
    assert op.post_ops([TensorType(DType(source), (3,))], ["x"], 0) is None


def test_flops_count_every_element() -> None:
    x = TensorType(DType.FLOAT32, (2, 5))
    assert HSwish().flops([x], [x]) == 70
