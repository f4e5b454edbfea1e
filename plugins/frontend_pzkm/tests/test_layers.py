"""Every layer type that is translated, against a float64 computation of its own, and every other one refused."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import FormatError
from dovetail_frontend_pzkm.catalogue import CATALOGUE, REFUSED
from dovetail_frontend_pzkm.layers import LAYERS
from dovetail_frontend_pzkm.schema import DataType

Array = NDArray[Any]
RNG = np.random.default_rng(5)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def wide(x: Array) -> NDArray[np.float64]:
    return x.astype(np.float64)


def nhwc(x: Array) -> Array:
    return np.moveaxis(x, 1, -1)


def conv(x: Array, w: Array, b: Array | float = 0.0, pads: Any = (0, 0, 0, 0), strides: Any = (1, 1), dil: Any = (1, 1)) -> Array:
    """Loops over the kernel; pads are top, left, bottom, right, all pairs are (Y, X)."""
    top, left, bottom, right = pads
    x = np.pad(wide(x), ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = [dil[i] * (w.shape[2 + i] - 1) + 1 for i in (0, 1)]
    out = [(x.shape[2 + i] - reach[i]) // strides[i] + 1 for i in (0, 1)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for i, j in np.ndindex(*w.shape[2:]):
        rows = slice(i * dil[0], i * dil[0] + strides[0] * (out[0] - 1) + 1, strides[0])
        columns = slice(j * dil[1], j * dil[1] + strides[1] * (out[1] - 1) + 1, strides[1])
        y += np.einsum("nchw,oc->nohw", x[:, :, rows, columns], wide(w)[:, :, i, j])
    return y + np.reshape(b, (-1, 1, 1))


def pool(
    x: Array, kernel: Any, strides: Any, reduce: Callable[..., Any], pads: Any = (0, 0, 0, 0), fill: float = -np.inf
) -> Array:
    top, left, bottom, right = pads
    x = np.pad(wide(x), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    out = [(x.shape[2 + i] - kernel[i]) // strides[i] + 1 for i in (0, 1)]
    y = np.empty((*x.shape[:2], *out))
    for i, j in np.ndindex(*out):
        window = x[:, :, i * strides[0] : i * strides[0] + kernel[0], j * strides[1] : j * strides[1] + kernel[1]]
        y[:, :, i, j] = reduce(window, axis=(2, 3))
    return y


X = random(2, 3, 7, 6)
W = random(4, 3, 3, 2)
B = random(4)
PADS = {"padTop": 2, "padLeft": 0, "padBottom": 1, "padRight": 1}
P = (2, 0, 1, 1)
DW = random(2, 3, 3, 2)
TW = random(4, 3, 2, 3)
HOT = wide(X).reshape(2, 3, 7, 6)


def depthwise(x: Array, w: Array) -> Array:
    """Output c * M + m is channel c through w[m, c]."""
    parts = [conv(x[:, c : c + 1], w[m : m + 1, c : c + 1]) for c in range(x.shape[1]) for m in range(w.shape[0])]
    return np.concatenate(parts, axis=1)


def transposed_conv(x: Array, w: Array, stride: Any) -> Array:
    """w is [O, I, kH, kW]."""
    kh, kw = w.shape[2:]
    y = np.zeros((x.shape[0], w.shape[0], (x.shape[2] - 1) * stride[0] + kh, (x.shape[3] - 1) * stride[1] + kw))
    for i, j in np.ndindex(*x.shape[2:]):
        block = np.einsum("nc,ochw->nohw", wide(x)[:, :, i, j], wide(w))
        y[:, :, i * stride[0] : i * stride[0] + kh, j * stride[1] : j * stride[1] + kw] += block
    return y


def erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def lrn(x: Array, size: int, alpha: float, beta: float) -> Array:
    squares = np.pad(wide(x) ** 2, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    return wide(x) / (1 + alpha * total) ** beta


def bilinear(x: Array, height: int, width: int) -> Array:
    """Output i is at i * size / target, beyond the last pixel it is the last."""
    for axis, target in ((2, height), (3, width)):
        at = np.arange(target) * x.shape[axis] / target
        low = np.floor(at).astype(int)
        high, part = np.minimum(low + 1, x.shape[axis] - 1), at - low
        shape = [-1 if a == axis else 1 for a in range(4)]
        x = np.take(x, low, axis) * (1 - part).reshape(shape) + np.take(x, high, axis) * part.reshape(shape)
    return x


# name: (layer type, inputs (an array: constant, or "x" with an array: input), expected, attributes)
CASES: dict[str, tuple[str, dict[str, Any], Any, dict[str, Any]]] = {}


def case(name: str, kind: str, inputs: dict[str, Any], expected: Any, **attrs: Any) -> None:
    assert name not in CASES
    CASES[name] = (kind, inputs, expected, attrs)


def fed(array: Array) -> tuple[Array]:
    """An input of the model, not a constant."""
    return (array,)


case(
    "conv",
    "Convolution2dLayer",
    {"input": fed(X), "weights": W, "biases": B},
    conv(X, W, B, P, (2, 1)),
    **PADS,
    strideY=2,
    strideX=1,
)
case("conv default stride", "Convolution2dLayer", {"input": fed(X), "weights": W}, conv(X, W, strides=(3, 2)))
case(
    "conv dilated", "Convolution2dLayer", {"input": fed(X), "weights": W},
    conv(X, W, dil=(1, 3), strides=(1, 1)), dilationX=3, dilationY=1, strideX=1, strideY=1, dataLayout="NCHW",
)  # fmt: skip
case(
    "conv NHWC", "Convolution2dLayer", {"input": fed(nhwc(X)), "weights": nhwc(W), "biases": B},
    nhwc(conv(X, W, B, P, (2, 1))), **PADS, strideY=2, strideX=1, dataLayout="NHWC",
)  # fmt: skip
case("depthwise", "DepthwiseConvolution2dLayer", {"input": fed(X), "weights": DW}, depthwise(X, DW), strideX=1, strideY=1)
case(
    "depthwise as ONNX", "DepthwiseConvolution2dLayer",
    {"input": fed(X), "weights": DW.transpose(1, 0, 2, 3).reshape(6, 1, 3, 2).copy()}, depthwise(X, DW), strideX=1, strideY=1,
)  # fmt: skip
case(
    "transposed conv", "TransposeConvolution2dLayer", {"input": fed(X), "weights": TW, "biases": B},
    transposed_conv(X, TW, (2, 1)) + B.reshape(-1, 1, 1), strideY=2, strideX=1,
)  # fmt: skip
case(
    "depthwise NHWC", "DepthwiseConvolution2dLayer", {"input": fed(nhwc(X)), "weights": nhwc(DW)}, nhwc(depthwise(X, DW)),
    strideX=1, strideY=1, dataLayout="nhwc",
)  # fmt: skip
case(
    "transposed conv NHWC", "TransposeConvolution2dLayer", {"input": fed(nhwc(X)), "weights": nhwc(TW)},
    nhwc(transposed_conv(X, TW, (2, 1))[:, :, 2:-1, :-1]), strideY=2, strideX=1, **PADS, dataLayout="NHWC",
)  # fmt: skip
case(
    "space to depth NHWC", "SpaceToDepthLayer", {"x": fed(nhwc(X[:, :, :6]))},
    nhwc(np.concatenate([X[:, :, i:6:2, j::2] for i in (0, 1) for j in (0, 1)], 1)), blockSize=2, dataLayout="NHWC",
)  # fmt: skip
case("max pool", "Pooling2dLayer", {"input": fed(X)}, pool(X, (3, 2), (3, 2), np.max), poolHeight=3, poolWidth=2)
case(
    "max pool pads", "Pooling2dLayer", {"input": fed(X)}, pool(X, (3, 2), (2, 1), np.max, P),
    poolHeight=3, poolWidth=2, strideX=1, strideY=2, poolType="Max", **PADS,
)  # fmt: skip
case(
    "mean pool", "Pooling2dLayer", {"input": fed(X)}, pool(X, (3, 2), (2, 1), np.mean, P, 0),
    poolHeight=3, poolWidth=2, strideX=1, strideY=2, poolType="average", paddingMethod="IgnoreValue", **PADS,
)  # fmt: skip
case(
    "mean pool exclude", "Pooling2dLayer", {"input": fed(X)}, pool(X, (3, 2), (2, 1), np.nanmean, P, np.nan),
    poolHeight=3, poolWidth=2, strideX=1, strideY=2, poolType="Average", paddingMethod="Exclude", **PADS,
)  # fmt: skip
case(
    "L2 pool NHWC", "Pooling2dLayer", {"input": fed(nhwc(X))},
    nhwc(np.sqrt(pool(X.astype(np.float64) ** 2, (3, 2), (3, 2), np.mean))),
    poolHeight=3, poolWidth=2, poolType="L2", dataLayout="NHWC",
)  # fmt: skip
case(
    "pool ceiling", "Pooling2dLayer", {"input": fed(X)}, pool(X, (2, 2), (2, 2), np.max, (0, 0, 1, 0)),
    poolHeight=2, poolWidth=2, outputShapeRounding="Ceiling",
)  # fmt: skip
case("add", "AdditionLayer", {"A": fed(X), "B": random(1, 3, 1, 1)}, None)
case("add by the right", "AdditionLayer", {"A": fed(X), "B": random(6)}, None)
case("sub", "SubtractionLayer", {"a": fed(X), "b": fed(random(2, 3, 7, 6))}, None)
case("mul", "MultiplicationLayer", {"A": fed(X), "B": random(2, 3, 7, 6)}, None)
case("div", "DivisionLayer", {"a": fed(X), "b": random(2, 3, 7, 6)}, None)
case("max", "MaximumLayer", {"a": fed(X), "b": random(2, 3, 7, 6)}, None)
case("min", "MinimumLayer", {"a": fed(X), "b": random(2, 3, 7, 6)}, None)
case("equal", "EqualLayer", {"a": fed(np.round(X)), "b": np.round(random(2, 3, 7, 6))}, None)
case("greater", "GreaterLayer", {"a": fed(X), "b": random(2, 3, 7, 6)}, None)
_FORMULAS: dict[str, Callable[..., Array]] = {
    "AdditionLayer": np.add, "SubtractionLayer": np.subtract, "MultiplicationLayer": np.multiply, "DivisionLayer": np.divide,
    "MaximumLayer": np.maximum, "MinimumLayer": np.minimum, "EqualLayer": np.equal, "GreaterLayer": np.greater,
}  # fmt: skip
for _name, (_kind, _inputs, _expected, _attrs) in list(CASES.items()):
    if _expected is None:
        _a, _b = (wide(v[0] if isinstance(v, tuple) else v) for v in _inputs.values())
        CASES[_name] = (_kind, _inputs, _FORMULAS[_kind](_a, _b), _attrs)

case("floor", "FloorLayer", {"x": fed(3 * X)}, np.floor(3 * X))
case("rsqrt", "RsqrtLayer", {"x": fed(np.abs(X) + 0.1)}, 1 / np.sqrt(wide(np.abs(X) + np.float32(0.1))))
case("prelu", "PreluLayer", {"x": fed(X), "alpha": random(3)}, None)
_slope = wide(CASES["prelu"][1]["alpha"]).reshape(3, 1, 1)
CASES["prelu"] = (*CASES["prelu"][:2], np.where(HOT > 0, HOT, _slope * HOT), {})
for _function, _result in {
    "Sigmoid": 1 / (1 + np.exp(-HOT)),
    "TanH": np.tanh(HOT),
    "ReLu": np.maximum(HOT, 0),
    "SoftReLu": np.log1p(np.exp(HOT)),
    "Abs": np.abs(HOT),
    "Square": HOT**2,
    "HardSwish": HOT * np.clip(HOT + 3, 0, 6) / 6,
    "Gelu": HOT * 0.5 * (1 + erf(HOT / np.sqrt(2))),
}.items():
    case(f"activation {_function}", "ActivationLayer", {"x": fed(X)}, _result, activationFunction=_function)
case("sqrt", "ActivationLayer", {"x": fed(np.abs(X))}, np.sqrt(np.abs(HOT)), activationFunction="Sqrt")
case("by number", "ActivationLayer", {"x": fed(X)}, np.maximum(HOT, 0), activationFunction=3)
case("linear", "ActivationLayer", {"x": fed(X)}, 2 * HOT - 0.5, activationFunction="Linear", a=2.0, b=-0.5)
case("bounded", "ActivationLayer", {"x": fed(X)}, np.clip(HOT, -0.25, 1), activationFunction="BoundedReLu", a=1.0, b=-0.25)
case("leaky", "ActivationLayer", {"x": fed(X)}, np.where(HOT > 0, HOT, 0.125 * HOT), activationFunction="LeakyReLu", a=0.125)
case("elu", "ActivationLayer", {"x": fed(X)}, np.where(HOT > 0, HOT, 0.5 * np.expm1(HOT)), activationFunction="Elu", a=0.5)
case("scaled tanh", "ActivationLayer", {"x": fed(X)}, 1.5 * np.tanh(0.5 * HOT), activationFunction="TanH", a=1.5, b=0.5)
case("output", "OutputLayer", {"x": fed(X)}, X)
case("input", "InputLayer", {"x": fed(X)}, X)
case("constant", "AdditionLayer", {"A": random(2, 2, 2, 2), "B": np.zeros((1, 1, 1, 1), np.float32)}, None)
CASES["constant"] = (*CASES["constant"][:2], CASES["constant"][1]["A"], {})
case("constant layer", "ConstantLayer", {"input": X}, X)

_scale, _shift, _mean, _var = random(3), random(3), random(3), np.abs(random(3)) + 0.5
_bn = (HOT - wide(_mean).reshape(3, 1, 1)) / np.sqrt(wide(_var).reshape(3, 1, 1) + 0.01)
_bn = _bn * wide(_scale).reshape(3, 1, 1) + wide(_shift).reshape(3, 1, 1)
_ports = {"mean": _mean, "variance": _var, "beta": _shift, "gamma": _scale}
case("batch norm", "BatchNormalizationLayer", {"input": fed(X), **_ports}, _bn, eps=0.01)
case("batch norm ports", "BatchNormalizationLayer", {**dict(reversed(_ports.items())), "input": fed(X)}, _bn, eps=0.01)
case("batch norm NHWC", "BatchNormalizationLayer", {"input": fed(nhwc(X)), **_ports}, nhwc(_bn), eps=0.01, dataLayout=1)
case("L2 norm", "L2NormalizationLayer", {"x": fed(X)}, HOT / np.sqrt(np.maximum(0.5, (HOT**2).sum(1, keepdims=True))), eps=0.5)
case("LRN", "NormalizationLayer", {"x": fed(X)}, lrn(X, 3, 0.1, 0.75), normSize=3, alpha=0.1, beta=0.75)
case("softmax", "SoftmaxLayer", {"x": fed(X)}, softmax(2 * HOT, -1), beta=2.0)
case("softmax padded", "SoftmaxLayer", {"x": fed(random(2, 9))}, None)
CASES["softmax padded"] = (*CASES["softmax padded"][:2], softmax(wide(CASES["softmax padded"][1]["x"][0]), 1), {})
case("mean", "MeanLayer", {"x": fed(X)}, HOT.mean((1, 3), keepdims=True), axis=[1, 3], keepDims=True)
case("mean drops", "MeanLayer", {"x": fed(X)}, HOT.mean((2, 3)), axis=[2, 3], keepDims=False)
case("mean of all", "MeanLayer", {"x": fed(X)}, HOT.mean().reshape(1), keepDims=False)
_fc_w, _fc_b = random(126, 5), random(5)
_fc = HOT.reshape(2, -1) @ wide(_fc_w) + _fc_b
case("fully connected", "FullyConnectedLayer", {"input": fed(X), "weights": _fc_w, "biases": _fc_b}, _fc)
case(
    "fully transposed",
    "FullyConnectedLayer",
    {"input": fed(X), "weights": _fc_w.T.copy(), "biases": _fc_b},
    _fc,
    transposeWeightsMatrix=True,
)
case(
    "resize nearest",
    "ResizeLayer",
    {"x": fed(X)},
    X[:, :, [0, 1, 2, 4, 5]][..., [0, 0, 1, 2, 2, 3, 4, 4, 5]],
    targetHeight=5,
    targetWidth=9,
)
case("resize linear", "ResizeLayer", {"x": fed(X)}, bilinear(HOT, 10, 4), targetHeight=10, targetWidth=4, method="Bilinear")
case(
    "resize bilinear NHWC",
    "ResizeBilinearLayer",
    {"x": fed(nhwc(X))},
    nhwc(bilinear(HOT, 14, 6)),
    targetHeight=14,
    targetWidth=6,
    dataLayout="NHWC",
)

case("reshape", "ReshapeLayer", {"x": fed(X)}, X.reshape(2, 9, 14, 1), targetShape=[2, 9, 14])
case("permute", "PermuteLayer", {"x": fed(nhwc(X).copy())}, X, dimMappings="0,2,3,1")
case("concat", "ConcatLayer", {"a": fed(X), "b": random(2, 4, 7, 6)}, None, concatAxis=1, numViews=2, numDimensions=4)
CASES["concat"] = (*CASES["concat"][:2], np.concatenate([X, CASES["concat"][1]["b"]], 1), CASES["concat"][3])
case(
    "stack",
    "StackLayer",
    {"a": fed(X[:, :, 0, 0]), "b": fed(X[:, :, 1, 1])},
    np.stack([X[:, :, 0, 0], X[:, :, 1, 1]], 1),
    axis=1,
    numInputs=2,
    inputShape=[2, 3],
)
case("split", "SplitterLayer", {"x": fed(X)}, [X[:, :, :2], X[:, :, 2:]], concatAxis=2, numViews=2)
case(
    "pad",
    "PadLayer",
    {"x": fed(X)},
    np.pad(X, ((0, 0), (1, 0), (0, 2), (3, 1)), constant_values=1.5),
    padList=[0, 0, 1, 0, 0, 2, 3, 1],
    padValue=1.5,
)
case("gather", "GatherLayer", {"x": fed(X), "i": ints(1, 0, 1)}, X[[1, 0, 1]])
case(
    "space to depth",
    "SpaceToDepthLayer",
    {"x": fed(X[:, :, :6])},
    np.concatenate([X[:, :, i:6:2, j::2] for i in (0, 1) for j in (0, 1)], 1),
    blockSize=2,
)
case(
    "slice",
    "StridedSliceLayer",
    {"x": fed(X)},
    X[1:2, :, 6:1:-2, 1:-1],
    begin=[1, 0, 6, 1],
    end=[2, 0, 1, -1],
    stride=[1, 1, -2, 1],
    endMask=2,
)
case(
    "slice backwards",
    "StridedSliceLayer",
    {"x": fed(X)},
    X[..., ::-1],
    begin=[0, 0, 0, 5],
    end=[0, 0, 0, 0],
    stride=[1, 1, 1, -1],
    beginMask=7,
    endMask=15,
)
case(
    "slice shrinks",
    "StridedSliceLayer",
    {"x": fed(X)},
    X[:, 2, :, 3:5],
    begin=[0, 2, 0, 3],
    end=[0, 0, 0, 5],
    beginMask=1,
    endMask=5,
    shrinkAxisMask=2,
)


def declared(expected: Any) -> Any:
    if isinstance(expected, list):
        return [declared(one) for one in expected]
    return (DataType.BOOL if expected.dtype == np.bool_ else DataType.FP32, expected.shape)


@pytest.mark.parametrize("pad", [True, False], ids=["padded", "ranked"])
@pytest.mark.parametrize("name", CASES)
def test_layer(files: Any, run: Any, name: str, pad: bool) -> None:
    kind, inputs, expected, attrs = CASES[name]
    feeds = [value[0] for value in inputs.values() if isinstance(value, tuple)]
    given = {port: value[0].shape if isinstance(value, tuple) else value for port, value in inputs.items()}
    if kind == "GatherLayer" and pad:
        expected = expected.reshape(3, *X.shape[1:])
    stored = files.one_layer(kind, given, declared(expected), pad=pad, **attrs)
    ranks = [4 - one.ndim if pad else 0 for one in feeds]
    results = run(stored, *(one.reshape(*one.shape, *(1,) * r) for one, r in zip(feeds, ranks, strict=True)))
    wanted = expected if isinstance(expected, list) else [expected]
    for got, one in zip(results, wanted, strict=True):
        assert got.shape == (*one.shape, *(1,) * ((4 - one.ndim) if pad else 0))
        np.testing.assert_allclose(got.reshape(one.shape), one, rtol=2e-5, atol=2e-5)


def test_every_type_that_is_translated_has_a_case() -> None:
    assert {kind for kind, _, _, _ in CASES.values()} == set(LAYERS)
    assert len(CATALOGUE) == 46
    assert set(CATALOGUE) == set(LAYERS) | set(REFUSED)
    assert not set(LAYERS) & set(REFUSED)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_without_counterpart_is_named(files: Any, kind: str) -> None:
    with pytest.raises(FormatError) as caught:
        files.read(files.one_layer(kind, {"x": (1, 2, 2, 2)}, (1, 2, 2, 2)))
    assert f"layer 0 'layer' ({kind}): layers of type {kind} cannot be translated: {REFUSED[kind]}" in str(caught.value)


@pytest.mark.parametrize("number", DataType)
def test_tensor_types(files: Any, number: DataType) -> None:
    stored = {2: b"\x01\x0f", 3: b"\x01\x0f", 10: b"\xf1", 12: b"\x1f", 8: bytes.fromhex("003c0040"), 1: b"\x00\x01"}
    size = {0: 4, 14: 4, 9: 4, 6: 2, 7: 2}.get(number, 1)
    data = stored.get(number, b"".join(n.to_bytes(size, "little") for n in (1, 200 if size == 1 else 60000)))
    values: dict[int, list[float]] = {
        0: [1, 60000], 14: [1, 60000], 6: [1, 60000 - 65536], 7: [1, 60000], 8: [1, 2], 1: [0, 1], 4: [1, 200 - 256], 5: [1, 200],
        11: [1, 200 - 256], 13: [1, 200], 15: [1, 200], 10: [1, -1], 12: [15, 1], 3: [1, 15], 2: [1, 7],
        9: np.frombuffer(data, np.float32).tolist() if number == 9 else [],
    }  # fmt: skip
    if number == 2:
        data = b"\x01\x07"
    one = files.without(files.tensor(0, random(2)), data_type=int(number))
    one = files.without(one, weights=files.without(one.weights, buffer=data, ele_bytes=0))
    found = files.read(files.model([one], [], [], [0]))
    (array,) = found.graph.constants.values()
    assert array.astype(np.float64).ravel().tolist() == values[number]
    assert not array.flags.writeable


def test_masks_read_the_bits_of_int32(files: Any) -> None:
    """The format's own writer states uint32 for int32: 4294967295 is -1."""
    kept = functools.partial(files.one_layer, "StridedSliceLayer", {"x": (1, 2, 3, 4)})
    model = files.read(kept((1, 2, 3, 3), begin=[0, 0, 0, 0], end=[1, 2, 3, -1]))
    assert model.graph.constants["layer/ends"].tolist() == [1, 2, 3, 3]


def test_the_layout_of_the_tensor_counts_where_the_layer_says_none(files: Any, run: Any) -> None:
    given = {"input": nhwc(X).shape, "weights": np.ascontiguousarray(nhwc(W))}
    stored = files.one_layer("Convolution2dLayer", given, nhwc(conv(X, W, strides=(3, 2))).shape, layout=1)
    np.testing.assert_allclose(run(stored, nhwc(X))[0], nhwc(conv(X, W, strides=(3, 2))), rtol=2e-5, atol=2e-5)


def test_markers_of_input_and_output_vanish(files: Any, run: Any) -> None:
    stored = files.one_layer("FloorLayer", {"x": (1, 2, 2, 2)}, (1, 2, 2, 2))
    begin, end = files.layer("InputLayer", {}, [0], "begin", 1), files.layer("OutputLayer", {"i": 1}, [], "end", 2)
    model = files.read(files.without(stored, layer_buffer=(end, *stored.layer_buffer, begin), layer_num=3))
    assert [node.name for node in model.graph.nodes] == ["layer"]


def test_an_optional_port_may_name_no_tensor(files: Any) -> None:
    stored = files.network(size=16)
    conv = stored.layer_buffer[0]
    ports = tuple(files.without(p, tensor_id=77, necessary=False) if p.name == "biases" else p for p in conv.input_id)
    model = files.read(files.without(stored, layer_buffer=(files.without(conv, input_id=ports), stored.layer_buffer[1])))
    assert len(model.graph.nodes[0].inputs) == 2


def test_names_that_are_missing_or_taken(files: Any, run: Any) -> None:
    same = [files.tensor(i, (1, 2, 2, 2)) for i in range(3)]
    same = [files.without(one, name="" if i == 1 else "t") for i, one in enumerate(same)]
    layers = [files.layer("FloorLayer", {"x": 0}, [1], "t"), files.layer("FloorLayer", {"x": 1}, [2], "t", 1)]
    model = files.read(files.model(same, layers, [0], [2]))
    assert [n.name for n in model.graph.nodes] == ["t", "t_1"]
    x = random(1, 2, 2, 2)
    np.testing.assert_array_equal(run(model, x)[0], np.floor(x))
