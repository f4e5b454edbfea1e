"""Every rule against central differences in float64, the derivative of what it gives too, and on ONEDNN in float32."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
import dovetail_ops_onnx as ops
from dovetail.graph import DType, GraphBuilder, Model
from dovetail.op import Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx_training import Gradient
from dovetail_ops_onnx_training.rules import COMPOSITIONS, DERIVATIVES

Array = NDArray[Any]
NEWEST = 99


@dataclass(frozen=True)
class Case:
    """One operator on arrays: differentiated by the inputs `wrt`, the others being constants, through the outputs `used`."""

    name: str
    op: Operator
    arrays: tuple[Array | None, ...]
    wrt: tuple[int, ...]
    outputs: int = 1
    used: tuple[int, ...] = (0,)

    def feeds(self, dtype: Any = np.float64) -> dict[str, Array]:
        """The inputs by name, in another precision."""
        return {f"x{i}": np.asarray(self.arrays[i], dtype) for i in self.wrt}

    def model(self, rng: np.random.Generator, order: int, dtype: str = "float64") -> Model:
        """Outputs: `loss`, a number made of the operator's outputs, its derivatives `d0_x...`, and with order 2 `d1_x...`,
        those of a number that is made of these.
        """
        g = GraphBuilder()
        names = ["" if a is None else self._given(g, i, a, dtype) for i, a in enumerate(self.arrays)]
        written = g.node(self.op, *names, outputs=[f"y{i}" for i in range(self.outputs)])
        written = (written,) if isinstance(written, str) else written
        xs = tuple(f"x{i}" for i in self.wrt)
        loss, outputs = _weighted(g, [written[i] for i in self.used], rng, dtype, "loss"), ["loss"]
        for level in range(order):
            found = [f"d{level}_{x}" for x in xs]
            g.node(Gradient(xs=xs, y=loss), *xs, outputs=found)
            outputs += found
            loss = _weighted(g, found, rng, dtype, f"loss{level}")
        return g.model(outputs)

    def _given(self, g: GraphBuilder, i: int, a: Array, dtype: str) -> str:
        if i in self.wrt:
            return g.input(f"x{i}", dtype, a.shape)
        return g.constant(a.astype(dtype) if a.dtype == np.float64 else a)


def _weighted(g: GraphBuilder, names: Sequence[str], rng: np.random.Generator, dtype: str, name: str) -> str:
    """The sum of each value times itself and a number: its derivatives differ from element to element."""
    totals = []
    for value in names:
        squared = g.node(Mul(), value, g.node(Add(), value, g.constant(rng.uniform(0.5, 1.5, ()), DType.of(dtype))))
        totals.append(g.node(ReduceSum(keepdims=False), squared))
    while len(totals) > 1:
        totals = [g.node(Add(), totals[0], totals[1]), *totals[2:]]
    g.node(Mul(), totals[0], g.constant(1.5, DType.of(dtype)), outputs=[name])
    return name


_rng = np.random.default_rng(7)


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    """Numbers at least 0.02 apart from 0 and from each other, so that differences cross no edge."""
    count = int(np.prod(shape))
    grid = np.linspace(low, high, count + 2)[1:-1] + 0.013
    return np.asarray(_rng.permutation(grid)).reshape(shape)


def case(op_type: str, *arrays: Array | None, wrt: Sequence[int] | None = None, version: int = NEWEST, **options: Any) -> Case:
    """A case; differentiated by all float arrays unless said otherwise. `options` are attributes, `outputs` and `used`."""
    outputs, used = options.pop("outputs", 1), options.pop("used", (0,))
    cls = ops.find(op_type, version)
    assert cls is not None
    floats = [i for i, a in enumerate(arrays) if a is not None and a.dtype == np.float64]
    shapes = "x".join("_".join(map(str, a.shape)) for i, a in enumerate(arrays) if a is not None and i in floats)
    name = "-".join([op_type, str(version) * (version != NEWEST), shapes, *(str(v) for v in options.values())])
    return Case(name, cls(**options), arrays, tuple(floats if wrt is None else wrt), outputs, used)


def ints(*values: Any) -> Array:
    """A vector of int64."""
    return np.array(values, np.int64)


ANYWHERE = ("Abs", "Neg", "Exp", "Tanh", "Sigmoid", "Sin", "Cos", "Sinh", "Cosh", "Asinh", "Atan", "Erf", "Relu", "LeakyRelu")
ANYWHERE += ("ThresholdedRelu", "Softplus", "Softsign", "Identity", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Swish")
ANYWHERE += ("Mish", "Gelu")
WITHIN = {"Log": (0.5, 3), "Sqrt": (0.5, 3), "Reciprocal": (0.5, 3), "Tan": (-1, 1), "Asin": (-0.8, 0.8), "Acos": (-0.8, 0.8)}
WITHIN |= {"Acosh": (1.5, 3), "Atanh": (-0.8, 0.8)}
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMin")
CASES = [
    *(case(name, real(3, 5)) for name in ANYWHERE),
    *(case(name, real(3, 5, low=low, high=high)) for name, (low, high) in WITHIN.items()),
    *(case(name, real(0, 3)) for name in ("Tanh", "Relu", "Gelu", "Softmax")),
    case("Gelu", real(7), approximate="tanh"),
    *(case(name, real(2, 3, 4), real(3, 1)) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")),
    *(case(name, real(4), real(2, 1, 4)) for name in ("Add", "Mul", "Div", "Sub")),
    *(case(name, real(0, 3), real(3)) for name in ("Add", "Mul")),
    *(case(name, real(2, 3), real(3), real(2, 1)) for name in ("Sum", "Mean", "Max", "Min")),
    case("Pow", real(3, 4, low=0.4, high=2), real(4)),
    case("Pow", real(5), np.array(3.0), wrt=[0]),
    case("Pow", real(5), np.array(2, np.int64), wrt=[0]),
    case("Where", np.array([[True], [False], [True]]), real(3, 4), real(4)),
    case("Clip", real(3, 5), np.array(-0.9), np.array(1.1)),
    case("Clip", real(7), None, np.array(0.51)),
    case("Clip", real(7), version=6, min=-0.5, max=1.0),
    *(case("MatMul", real(*a), real(*b)) for a, b in [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,))]),
    *(case("MatMul", real(*a), real(*b)) for a, b in [((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 3)), ((2, 3, 0), (0, 2))]),
    case("Gemm", real(3, 4), real(4, 5), real(5)),
    case("Gemm", real(4, 3), real(5, 4), real(3, 1), transA=True, transB=True, alpha=0.5, beta=2.0),
    case("Gemm", real(3, 4), real(4, 5)),
    *(case(name, real(2, 3, 4), ints(0, -1)) for name in REDUCTIONS),
    *(case(name, real(2, 3), keepdims=False) for name in REDUCTIONS),
    *(case(name, real(2, 0, 3), ints(0)) for name in ("ReduceSum", "ReduceMean", "ReduceMax")),
    case("ReduceSum", real(2, 3), ints(), noop_with_empty_axes=True),
    case("ReduceLogSum", real(2, 3, low=0.5, high=2), ints(1), keepdims=False),
    case("Reshape", real(2, 6), ints(3, -1)),
    case("Flatten", real(2, 3, 4), axis=2),
    case("Squeeze", real(2, 1, 3), ints(1)),
    case("Unsqueeze", real(2, 3), ints(0, 3)),
    case("Transpose", real(2, 3, 4), perm=(2, 0, 1)),
    case("Transpose", real(2, 3, 4)),
    case("Expand", real(3, 1), ints(2, 1, 4)),
    case("Tile", real(2, 3), ints(3, 2)),
    case("Concat", real(2, 3), real(2, 1), real(2, 0), axis=1),
    case("Concat", real(2, 3), axis=-1),
    case("Split", real(2, 5), ints(2, 0, 3), axis=1, outputs=3, used=(0, 2)),
    case("Slice", real(5, 6), ints(1, -1), ints(4, -7), ints(0, 1), ints(1, -2)),
    case("Slice", real(5, 6), ints(3), ints(1)),
    case("Slice", real(5, 6), ints(1), ints(100), ints(-1)),
    case("Pad", real(2, 3), ints(1, -1, 0, 2), np.array(0.7)),
    case("Pad", real(2, 3), ints(2, 1), None, ints(-1)),
    case("Pad", real(2, 3), ints(0, 1, 2, 0), version=2, value=0.7),
    case("Gather", real(4, 3), np.array([[0, -1], [2, 0]]), axis=0),
    case("Gather", real(2, 4, 3), np.array(2), axis=-2),
    case("GatherElements", real(3, 4), np.array([[0, 2, -1, 0], [1, 1, 0, 2]]), axis=0),
    case("GatherND", real(3, 4, 2), np.array([[0, 1], [2, -1], [0, 1]])),
    *(case("ScatterElements", real(3, 3), np.array([[0, 2, 1]]), real(1, 3), axis=0, reduction=r) for r in ("none", "add")),
    *(case("ScatterND", real(4, 3), np.array([[3], [0]]), real(2, 3), reduction=r) for r in ("none", "add")),
    case("TopK", real(3, 5), ints(2), axis=-1, outputs=2),
    case("CumSum", real(3, 4), np.array(1), exclusive=True),
    case("Shrink", real(3, 5), lambd=0.9, bias=0.3),
    *(
        case("Einsum", *(real(*shape) for shape in shapes), equation=equation)
        for equation, shapes in {
            "ij,jk->ik": [(2, 3), (3, 4)],
            "b...i,...ij": [(2, 1, 3), (2, 3, 2)],
            "ij,kj,k->": [(2, 3), (4, 3), (4,)],
            "ij->j": [(2, 3)],
            "ij,ij->ij": [(1, 3), (2, 3)],
        }.items()
    ),
    case("GroupNormalization", real(2, 4, 3), real(4), real(4), num_groups=2),
    case("GroupNormalization", real(2, 4, 3), real(2), real(2), num_groups=2, version=18),
    *(case("DepthToSpace", real(1, 8, 2, 3), blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
    case("SpaceToDepth", real(2, 1, 4, 6), blocksize=2),
    case("Trilu", real(3, 4), np.array(1), upper=False),
    *(case(name, real(2, 3, 4), axis=1) for name in ("Softmax", "LogSoftmax")),
    *(case(name, real(2, 3, 2), axis=1, version=1) for name in ("Softmax", "LogSoftmax")),
    case("Dropout", real(3, 4), outputs=1),
    case("LayerNormalization", real(3, 2, 4), real(2, 4), real(4), axis=1),
    case("LayerNormalization", real(3, 4), real(4)),
    case("InstanceNormalization", real(2, 3, 5), real(3), real(3)),
    case("BatchNormalization", real(3, 2, 4), real(2), real(2), real(2), real(2, low=0.5)),
    case("BatchNormalization", real(5), real(1), real(1), real(1), real(1, low=0.5)),
    case("BatchNormalization", real(3, 2), real(2), real(2), real(2), real(2, low=0.5), wrt=[0, 1, 2], training_mode=True),
    case("RMSNormalization", real(3, 4), real(4)),
    case("LpNormalization", real(2, 5), axis=1),
    case("LpNormalization", real(2, 5), axis=0, p=1),
    case("GlobalAveragePool", real(2, 3, 2, 3)),
    case("GlobalMaxPool", real(2, 3, 2, 3)),
    case("MaxPool", real(2, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    case("AveragePool", real(1, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    case("AveragePool", real(1, 1, 6), kernel_shape=(3,), strides=(2,), ceil_mode=True, count_include_pad=True),
    case("Conv", real(2, 2, 5), real(3, 2, 3), real(3), strides=(2,), pads=(1, 0)),
    case("Conv", real(1, 4, 4, 5), real(4, 2, 2, 3), group=2, dilations=(2, 1), pads=(1, 1, 0, 2), strides=(1, 2)),
    case("Conv", real(1, 2, 6), real(2, 1, 2), group=2, strides=(3,), auto_pad="SAME_UPPER"),
    case("Conv", real(0, 2, 5), real(3, 2, 3)),
    case("ConvTranspose", real(2, 2, 3), real(2, 3, 3), real(3), strides=(2,), pads=(1, 0), output_padding=(1,)),
    case("ConvTranspose", real(1, 4, 2, 3), real(4, 1, 2, 2), group=2, dilations=(2, 1), strides=(1, 2)),
    case("NegativeLogLikelihoodLoss", real(3, 4), np.array([1, 3, 0]), real(4, low=0.5), wrt=[0]),
    case("NegativeLogLikelihoodLoss", real(2, 3, 4), np.array([[1, 2, 0, 2], [0, 1, 1, 2]]), ignore_index=2, reduction="none"),
    case("SoftmaxCrossEntropyLoss", real(3, 4), np.array([1, 3, 0])),
    case("SwiGLU", real(3, 4), real(3, 4)),
]
FLAT = [case(name, real(5)) for name in ("Floor", "Ceil", "Round", "Sign")]


def values(core: dovetail.Core, model: Model, feeds: dict[str, Array], device: str = "NUMPY") -> dict[str, Array]:
    """The outputs of the model."""
    with core.compile_model(model, device) as compiled:
        return dict(compiled(feeds))


@pytest.mark.parametrize("one", CASES, ids=[c.name for c in CASES])
def test_first_and_second_order(core: dovetail.Core, slopes: Any, one: Case) -> None:
    at = one.feeds()
    with core.compile_model(one.model(np.random.default_rng(3), 2), "NUMPY") as compiled:
        found = dict(compiled(at))
    with core.compile_model(one.model(np.random.default_rng(3), 1), "NUMPY") as compiled:
        # What the second derivatives are of is written down once more, in NumPy.
        rng = np.random.default_rng(3)
        rng.uniform(0.5, 1.5, (len(one.used),))
        factors = rng.uniform(0.5, 1.5, (len(at),))

        def loss(x: dict[str, Array]) -> Array:
            return compiled(x)["loss"]

        def second(x: dict[str, Array]) -> Any:
            given = compiled(x)
            return 1.5 * sum(
                np.sum(given[f"d0_{name}"] * (given[f"d0_{name}"] + factor)) for name, factor in zip(x, factors, strict=True)
            )

        for order, function in enumerate((loss, second)):
            for name, want in slopes(function, at).items():
                got = found[f"d{order}_{name}"]
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                scale = max(1.0, np.abs(want).max(initial=0))
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * scale, err_msg=f"order {order + 1} by {name}")


@pytest.mark.parametrize("one", CASES, ids=[c.name for c in CASES])
def test_onednn_in_float32(core: dovetail.Core, one: Case) -> None:
    want = values(core, one.model(np.random.default_rng(3), 1), one.feeds())
    got = values(core, one.model(np.random.default_rng(3), 1, "float32"), one.feeds(np.float32), "ONEDNN")
    for name in want:
        scale = max(1.0, np.abs(want[name]).max(initial=0))
        np.testing.assert_allclose(got[name], want[name], rtol=2e-4, atol=2e-5 * scale, err_msg=name)


@pytest.mark.parametrize("one", FLAT, ids=[c.name for c in FLAT])
def test_steps_have_derivative_0(core: dovetail.Core, one: Case) -> None:
    found = values(core, one.model(np.random.default_rng(3), 1), one.feeds())
    np.testing.assert_array_equal(found["d0_x0"], np.zeros(5))


def test_every_rule_has_a_case() -> None:
    assert {*COMPOSITIONS, *DERIVATIVES} - {"Cast"} <= {c.op.op_type for c in (*CASES, *FLAT)}


def test_cast_goes_back_to_the_type_of_its_input(core: dovetail.Core) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    wide = g.node(Cast(to=DType.FLOAT64), x)
    g.node(ReduceSum(keepdims=False), g.node(Mul(), wide, wide), outputs=["y"])
    g.node(Gradient(xs=("x",), y="y"), x, outputs=["dx"])
    at = np.array([1, -2, 0.5], np.float32)
    found = values(core, g.model(["dx"]), {"x": at})["dx"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, 2 * at)
