"""Results on which other runtimes disagree, as docs/reference/onnx_differences.md lists them, by hand and on every device."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import dovetail
from dovetail.errors import OperatorError

Array = NDArray[Any]
NAN, INF = np.nan, np.inf


@dataclass(frozen=True)
class Single:
    """A node with inputs, some of them constants by their index, and what it gives."""

    op_type: str
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    unlike: tuple[str, ...] = ()
    """Devices for which the page says otherwise."""

    def run(self, core: dovetail.Core, device: str) -> list[Array]:
        names = [f"i{i}" for i in range(len(self.inputs))]
        arrays = dict(zip(names, self.inputs, strict=True))
        fixed = {f"i{i}" for i in self.constants}
        outputs = [f"o{i}" for i in range(len(self.expected))]
        numbers = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in arrays.items()}
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, outputs, **self.attributes)],
            self.op_type,
            [helper.make_tensor_value_info(n, numbers[n], a.shape) for n, a in arrays.items() if n not in fixed],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(arrays[name], name) for name in fixed],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        with core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), device) as compiled:
            return [np.asarray(a) for a in compiled({n: a for n, a in arrays.items() if n not in fixed}).values()]


def f32(*values: float, shape: tuple[int, ...] = (-1,)) -> Array:
    return np.array(values, np.float32).reshape(shape)


def _reduced(op_type: str, x: Array, expected: Any) -> Single:
    axes = np.array([1], np.int64)
    return Single(op_type, (x, axes), (np.array(expected, x.dtype),), {"keepdims": 0}, (1,))


LINE = (1, 1, -1)
NONE = np.zeros((2, 0), np.float32)
NO_INTEGERS = np.zeros((2, 0), np.int32)
LIMITS = np.iinfo(np.int32)

SINGLE = {
    **{
        f"{op_type}, {pad}, a stride beyond the kernel": Single(
            op_type,
            (f32(0, 1, 2, 3, 4, shape=LINE),),
            (f32(0, 3, shape=LINE),),
            {"auto_pad": pad, "kernel_shape": [1], "strides": [3]},
        )
        for op_type in ("AveragePool", "MaxPool", "LpPool")
        for pad in ("SAME_UPPER", "SAME_LOWER")
    },
    "GlobalMaxPool of three axes in float64": Single(
        "GlobalMaxPool", (np.arange(8.0).reshape(1, 2, 1, 2, 2),), (np.array([3.0, 7]).reshape(1, 2, 1, 1, 1),)
    ),
    "QuantizeLinear of NaN and infinities": Single(
        "QuantizeLinear", (f32(NAN, INF, -INF, 1), f32(1, shape=()), np.array(3, np.uint8)), (np.array([0, 255, 0, 4], np.uint8),)
    ),
    **{
        # The scale is (max - min) / 255; all quotients by it, also that of the zero point, are NaN, which becomes 0.
        f"DynamicQuantizeLinear of {word}": Single(
            "DynamicQuantizeLinear",
            (f32(first, 1, -1),),
            (np.zeros(3, np.uint8), np.array(scale, np.float32), np.array(0, np.uint8)),
        )
        for word, first, scale in (("NaN", NAN, NAN), ("infinity", INF, INF))
    },
    "DynamicQuantizeLinear of zeros": Single(
        "DynamicQuantizeLinear",
        (f32(0, 0),),
        (np.zeros(2, np.uint8), np.array(1 / 255, np.float32), np.array(0, np.uint8)),
    ),
    "NonZero of a scalar": Single("NonZero", (f32(3, shape=()),), (np.zeros((0, 1), np.int64),)),
    "Cast to uint8": Single(
        "Cast", (f32(NAN, 300, -5, INF, -INF, 2.9),), (np.array([0, 255, 0, 255, 0, 2], np.uint8),), {"to": 2}
    ),
    "CastLike to int8": Single(
        "CastLike", (f32(NAN, 300, -500, INF), np.zeros(1, np.int8)), (np.array([0, 127, -128, 127], np.int8),)
    ),
    "Clip of float16 by min alone": Single(
        "Clip", (np.array([-INF, INF, 1], np.float16), np.array(0, np.float16)), (np.array([0, 65504, 1], np.float16),)
    ),
    "Erf of integers": Single("Erf", (np.array([0, 10, -10, 2], np.int32),), (np.array([0, 1, -1, 0], np.int32),)),
    "ReduceLogSum of integers": _reduced("ReduceLogSum", np.array([[1, 7], [2, 18]], np.int32), [2, 2]),
    "ReduceLogSumExp of integers": _reduced("ReduceLogSumExp", np.array([[1, 1], [5, 0]], np.int32), [1, 5]),
    "ReduceSum of nothing": _reduced("ReduceSum", NONE, [0, 0]),
    "ReduceProd of nothing": _reduced("ReduceProd", NONE, [1, 1]),
    "ReduceMax of nothing": _reduced("ReduceMax", NONE, [-INF, -INF]),
    "ReduceMin of nothing": _reduced("ReduceMin", NONE, [INF, INF]),
    "ReduceMean of nothing": _reduced("ReduceMean", NONE, [NAN, NAN]),
    "ReduceLogSum of nothing": _reduced("ReduceLogSum", NONE, [-INF, -INF]),
    "ReduceLogSumExp of nothing": _reduced("ReduceLogSumExp", NONE, [-INF, -INF]),
    "ReduceMax of no integers": _reduced("ReduceMax", NO_INTEGERS, [LIMITS.min] * 2),
    "ReduceMin of no integers": _reduced("ReduceMin", NO_INTEGERS, [LIMITS.max] * 2),
    "ReduceMean of no integers": _reduced("ReduceMean", NO_INTEGERS, [0, 0]),
    "ReduceSum beyond the type": _reduced("ReduceSum", np.full((1, 3), 2**30, np.int32), [-(2**30)]),
    "ReduceMax of NaN": _reduced("ReduceMax", f32(1, NAN, 3, NAN, INF, 2, shape=(2, 3)), [NAN, NAN]),
    "ReduceMin of NaN": _reduced("ReduceMin", f32(1, NAN, 3, NAN, INF, 2, shape=(2, 3)), [NAN, NAN]),
    **{
        f"{op_type} of NaN, the {word}": Single(
            op_type, (f32(1, NAN, NAN, 5),), (np.array([place]),), {"select_last_index": last}
        )
        for op_type in ("ArgMax", "ArgMin")
        for word, last, place in (("first", 0, 1), ("last", 1, 2))
    },
    "Hardmax of NaN": Single("Hardmax", (f32(1, NAN, NAN, 5),), (f32(0, 1, 0, 0),)),
    "Clip by NaN": Single("Clip", (f32(-2, 2), f32(NAN, shape=()), f32(1, shape=())), (f32(NAN, NAN),), unlike=("OPENCL",)),
    "Pow of negative infinity": Single("Pow", (f32(-INF, 4), f32(0.5, shape=())), (f32(NAN, 2),), constants=(1,)),
    "LRN of an even size": Single(
        "LRN",
        (f32(1, 2, 3, 4, shape=(1, 4, 1, 1)),),
        (f32(1 / 6, 2 / 14, 3 / 26, 4 / 17, shape=(1, 4, 1, 1)),),
        {"size": 2, "alpha": 2.0, "beta": 1.0, "bias": 1.0},
    ),
    "LRN of NaN": Single(
        "LRN",
        (f32(NAN, 1, 1, 1, 1, shape=(1, 5, 1, 1)),),
        (f32(NAN, NAN, 1 / 4, 1 / 4, 1 / 3, shape=(1, 5, 1, 1)),),
        {"size": 3, "alpha": 3.0, "beta": 1.0, "bias": 1.0},
    ),
    "MaxPool of NaN": Single("MaxPool", (f32(1, NAN, 3, 2, shape=LINE),), (f32(NAN, NAN, 3, shape=LINE),), {"kernel_shape": [2]}),
    "MaxPool of negative infinities": Single(
        "MaxPool", (f32(-INF, -INF, 1, shape=LINE),), (f32(-INF, 1, shape=LINE),), {"kernel_shape": [2]}
    ),
    "MaxPool, SAME_UPPER, dilations": Single(
        "MaxPool",
        (f32(1, 2, 3, 4, 5, shape=LINE),),
        (f32(2, 3, 4, 5, 4, shape=LINE),),
        {"auto_pad": "SAME_UPPER", "kernel_shape": [2], "dilations": [2]},
    ),
    "ThresholdedRelu of NaN": Single("ThresholdedRelu", (f32(NAN, -1, 2),), (f32(NAN, 0, 2),)),
    "PRelu with NaN and infinity": Single(
        "PRelu", (f32(2, 0, -1), f32(NAN, INF, 2)), (f32(2, 0, -2),), constants=(1,), unlike=("ONEDNN",)
    ),
    "GroupNormalization of NaN": Single(
        "GroupNormalization",
        (f32(NAN, 1, 1, 3, shape=(1, 2, 2)), f32(1, 1), f32(0, 0)),
        (f32(NAN, NAN, -1, 1, shape=(1, 2, 2)),),
        {"num_groups": 2, "epsilon": 0.0},
    ),
    "Conv of NaN": Single(
        "Conv", (f32(1, NAN, 3, 4, 5, shape=LINE), f32(1, 1, 1, shape=LINE)), (f32(NAN, NAN, 12, shape=LINE),), constants=(1,)
    ),
    "Gemm with beta 0": Single(
        "Gemm",
        (f32(1, 2, shape=(1, 2)), f32(3, 4, shape=(2, 1)), f32(NAN, shape=(1, 1))),
        (f32(11, shape=(1, 1)),),
        {"beta": 0.0},
    ),
    "Unique without sorting": Single(
        "Unique",
        (f32(3, 1, 3, 2),),
        (f32(3, 1, 2), np.array([0, 1, 3]), np.array([0, 1, 0, 2]), np.array([2, 1, 1])),
        {"sorted": 0},
    ),
}


@pytest.mark.parametrize("name", SINGLE)
def test_by_hand(core: dovetail.Core, device: str, name: str) -> None:
    one = SINGLE[name]
    if device.partition(".")[0] in one.unlike:
        pytest.skip(f"the page says that {device} differs")
    for got, want in zip(one.run(core, device), one.expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    ("x", "want"), [(f32(1, 2.9), ["1.0", "2.9"]), (np.array([True, False]), ["True", "False"])], ids=["floats", "bool"]
)
def test_strings(core: dovetail.Core, device: str, x: Array, want: list[str]) -> None:
    [found] = Single("Cast", (x,), (x,), {"to": 8}).run(core, device)
    assert found.tolist() == want


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_the_sign_of_a_zero_that_neg_makes_is_not_open(core: dovetail.Core, device: str, dtype: Any) -> None:
    x = np.array([0, -0.0, 1, -1] * 9, dtype)
    [found] = Single("Neg", (x,), (x,)).run(core, device)
    np.testing.assert_array_equal(np.signbit(found), ~np.signbit(x))


def test_weights_of_int8_with_a_zero_point_of_uint8(core: dovetail.Core, device: str) -> None:
    scale, zero = f32(1, shape=()), np.array(0, np.uint8)
    x, w = np.zeros((1, 1, 3), np.uint8), np.zeros((1, 1, 2), np.int8)
    node = Single("QLinearConv", (x, scale, zero, w, scale, zero, scale, zero), (np.zeros((1, 1, 2), np.uint8),))
    with pytest.raises(OperatorError, match="'w_zero_point' is uint8 but input 'w' is int8"):
        node.run(core, device)
