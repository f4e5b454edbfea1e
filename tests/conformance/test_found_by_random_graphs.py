"""Small models that random graphs (tests/random_graphs) found wrong on some device, with values by hand."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

import dovetail

Arrays = dict[str, NDArray[Any]]


def run(core: dovetail.Core, device: str, nodes: list[NodeProto], constants: Arrays, feeds: Arrays, outputs: list[str]) -> Any:
    numbers = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in feeds.items()}
    graph = helper.make_graph(
        nodes,
        "found",
        [helper.make_tensor_value_info(name, numbers[name], a.shape) for name, a in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), device) as compiled:
        return [np.asarray(a) for a in compiled(feeds).values()]


@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_dropout_of_a_constant_with_its_mask(core: dovetail.Core, device: str, shape: tuple[int, ...]) -> None:
    given = np.full(shape, 1.5, ml_dtypes.bfloat16)
    y, mask = run(core, device, [helper.make_node("Dropout", ["c"], ["y", "mask"])], {"c": given}, {}, ["y", "mask"])
    np.testing.assert_array_equal(y, given)
    np.testing.assert_array_equal(mask, np.ones(shape, np.bool_))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_normalization_whose_squares_overflow_in_16_bits(core: dovetail.Core, device: str, dtype: Any) -> None:
    x = np.array([0, 0, 0, 60000], dtype).reshape(1, 1, 4, 1)
    (y,) = run(core, device, [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])], {}, {"x": x}, ["y"])
    # The mean is a quarter of the last, the deviation sqrt(3) / 4 of it.
    np.testing.assert_allclose(y.astype(np.float64).reshape(4), np.array([-1, -1, -1, 3]) / np.sqrt(3), rtol=1e-2)


def test_a_constant_image_of_bfloat16(core: dovetail.Core, device: str) -> None:
    x = np.ones((2, 4, 6, 6), ml_dtypes.bfloat16)
    w = np.ones((4, 4, 3, 3), ml_dtypes.bfloat16)
    bias = np.array([0, 1, 2, 4], ml_dtypes.bfloat16)
    (y,) = run(core, device, [helper.make_node("ConvTranspose", ["c", "w", "b"], ["y"])], {"c": x, "w": w}, {"b": bias}, ["y"])
    rows = np.array([1, 2, 3, 3, 3, 3, 2, 1])  # elements of the kernel that reach each row of the output
    expected = 4.0 * np.multiply.outer(rows, rows) + bias.astype(np.float64).reshape(1, 4, 1, 1)
    np.testing.assert_allclose(y.astype(np.float64), np.broadcast_to(expected, (2, 4, 8, 8)), rtol=1e-2)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_zeros_beside_an_infinity_at_the_border(core: dovetail.Core, device: str, mode: str) -> None:
    x = np.full((1, 1, 4, 4), np.inf, np.float32)
    grid = np.full((1, 1, 2, 2), 9, np.float32)  # both places are outside, far from all elements
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode)
    (y,) = run(core, device, [node], {}, {"x": x, "g": grid}, ["y"])
    np.testing.assert_array_equal(y, np.zeros((1, 1, 1, 2), np.float32))


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_zero_times_infinity_with_a_single_weight(core: dovetail.Core, device: str, op_type: str) -> None:
    x = np.array([1, np.inf, -2, np.nan]).reshape(1, 1, 4)
    (y,) = run(core, device, [helper.make_node(op_type, ["x", "w"], ["y"])], {"w": np.zeros((1, 1, 1))}, {"x": x}, ["y"])
    np.testing.assert_array_equal(y, np.array([0, np.nan, 0, np.nan]).reshape(1, 1, 4))


@pytest.mark.parametrize("slope", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("rows", [1, 70])
def test_prelu_of_zero_after_a_node(core: dovetail.Core, device: str, slope: float, rows: int) -> None:
    x = np.tile(np.array([0, 3, -0.0, 2], np.float32), (rows, 1))
    nodes = [helper.make_node("Add", ["x", "z"], ["a"]), helper.make_node("PRelu", ["a", "s"], ["y"])]
    zeros = np.zeros((rows, 4), np.float32)
    (y,) = run(core, device, nodes, {"s": np.full(4, slope, np.float32)}, {"x": x, "z": zeros}, ["y"])
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("bound", ["low", "high"])
def test_clip_of_bfloat16_by_one_limit_that_is_an_input(core: dovetail.Core, device: str, bound: str) -> None:
    x = np.array([-3, -0.5, 0.5, 3], ml_dtypes.bfloat16)
    names = ["x", "b"] if bound == "low" else ["x", "", "b"]
    feeds = {"x": x, "b": np.array(0.25, ml_dtypes.bfloat16)}
    (y,) = run(core, device, [helper.make_node("Clip", names, ["y"])], {}, feeds, ["y"])
    expected = [0.25, 0.25, 0.5, 3] if bound == "low" else [-3, -0.5, 0.25, 0.25]
    np.testing.assert_array_equal(y.astype(np.float64), expected)
