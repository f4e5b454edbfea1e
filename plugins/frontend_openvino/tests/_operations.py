"""A graph for each operation: name -> (openvino model, inputs). Odd sizes, seeded; used by several tests."""

import runpy
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from openvino import (
    opset1,
    opset3,
    opset4,
    opset5,
    opset6,
    opset7,
    opset8,
    opset9,
    opset10,
    opset11,
    opset12,
    opset13,
    opset14,
    opset15,
    opset16,
)
from openvino.utils.node_factory import NodeFactory

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c, b, RNG = (_GRAPHS[name] for name in ("Operation", "f", "i", "c", "b", "RNG"))
_FILES = ("_sequences.py", "_blocks.py", "_searches.py", "_further.py", "_priors.py", "_pictures.py", "_own.py", "_detectors.py")
FURTHER = [family for name in _FILES for family in runpy.run_path(str(Path(__file__).with_name(name)))["FAMILIES"]]


def _unary() -> Iterable[Any]:
    names = "abs asin asinh atan cos cosh erf exp floor ceiling negative relu sigmoid sign sin sinh tan tanh"
    for name in names.split():
        low, high = (-0.9, 0.9) if name.startswith("a") else (-2.0, 2.0)
        yield Operation(name, getattr(opset4, name), (f(3, 5, low=low, high=high),))
    yield Operation("acos", opset4.acos, (f(7, low=-0.9, high=0.9),))
    yield Operation("acosh", opset4.acosh, (f(7, low=1.1, high=4),))
    yield Operation("atanh", opset4.atanh, (f(7, low=-0.9, high=0.9),))
    yield Operation("log", opset4.log, (f(7, low=0.1, high=4),))
    yield Operation("sqrt", opset4.sqrt, (f(7, low=0.1, high=4),))
    yield Operation("mish", opset4.mish, (f(3, 5),))
    yield Operation("softplus", opset4.softplus, (f(3, 5),))
    yield Operation("softsign", opset9.softsign, (f(3, 5),))
    yield Operation("hswish", opset4.hswish, (f(3, 5, low=-4, high=4),))
    yield Operation("hsigmoid", opset5.hsigmoid, (f(3, 5, low=-4, high=4),))
    yield Operation("elu", lambda x: opset1.elu(x, 0.7), (f(3, 5),))
    yield Operation("clamp", lambda x: opset1.clamp(x, -0.5, 0.75), (f(3, 5),))
    yield Operation("clamp int", lambda x: opset1.clamp(x, -1.5, 2.5), (i(3, 5),))
    yield Operation("selu", lambda x: opset1.selu(x, c(1.5, np.float32), c(1.1, np.float32)), (f(3, 5),))
    yield Operation("hard sigmoid", lambda x: opset1.hard_sigmoid(x, c(0.3, np.float32), c(0.4, np.float32)), (f(3, 5),))
    yield Operation("swish", opset4.swish, (f(3, 5),))
    yield Operation("swish beta", lambda x: opset4.swish(x, c(1.7, np.float32)), (f(3, 5),))
    yield Operation("swish computed", opset4.swish, (f(3, 5), f()))
    yield Operation("gelu erf", lambda x: opset7.gelu(x, "erf"), (f(3, 5),))
    yield Operation("gelu tanh", lambda x: opset7.gelu(x, "tanh"), (f(3, 5),))
    yield Operation("prelu channels", opset1.prelu, (f(2, 3, 5), f(3)))
    yield Operation("prelu one", opset1.prelu, (f(2, 3, 5), f(1)))
    yield Operation("prelu elements", opset1.prelu, (f(2, 3, 5), f(3, 5)))
    halves = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3])
    yield Operation("round even", lambda x: opset5.round(x, "half_to_even"), (halves,))
    yield Operation("round away", lambda x: opset5.round(x, "half_away_from_zero"), (halves,))
    odd = np.float32([1, np.inf, -np.inf, np.nan])
    yield Operation("is nan", opset10.is_nan, (odd,))
    yield Operation("is inf", lambda x: opset10.is_inf(x, {"detect_negative": False}), (odd,))
    yield Operation("is finite", opset10.is_finite, (odd,))
    yield Operation("logical not", opset1.logical_not, (b(3, 5),))
    yield Operation("bitwise not", opset13.bitwise_not, (i(3, 5),))
    yield Operation("convert", lambda x: opset1.convert(x, "i32"), (f(3, 5),))
    yield Operation("convert to bool", lambda x: opset1.convert(x, "boolean"), (i(3, 5),))
    yield Operation("convert like", opset1.convert_like, (f(3, 5), i(2)))
    yield Operation("identity", opset16.identity, (f(3, 5),))


def _binary() -> Iterable[Any]:
    for name in ("add", "subtract", "multiply", "maximum", "minimum", "squared_difference", "divide", "mod", "floor_mod"):
        yield Operation(name, getattr(opset1, name), (f(2, 3, 5), f(3, 1, low=0.5)))
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        yield Operation(name, getattr(opset1, name), (i(4, 3), i(3)))
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield Operation(name, getattr(opset1, name), (b(4, 3), b(3)))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield Operation(name, getattr(opset13, name), (i(4, 3), i(3)))
    yield Operation("power", opset1.power, (f(3, 5, low=0.1), f(5)))
    signs = (np.int32([7, -7, 7, -7]), np.int32([2, 2, -2, -2]))
    yield Operation("divide int", opset1.divide, signs, reference=True)
    yield Operation("mod int", opset1.mod, signs)
    yield Operation("floor mod int", opset1.floor_mod, signs)
    yield Operation(
        "shift left", opset15.bitwise_left_shift, (i(5, low=0, dtype=np.uint32), i(5, low=0, high=4, dtype=np.uint32))
    )
    yield Operation("pdpd", lambda x, y: opset1.add(x, y, "PDPD"), (f(2, 3, 5), f(2, 3)))
    yield Operation("select", opset1.select, (b(4, 3), f(4, 3), f(3)))


def _matrices() -> Iterable[Any]:
    yield Operation("matmul", lambda x, y: opset1.matmul(x, y, False, False), (f(2, 3, 5), f(5, 7)))
    yield Operation("matmul transposed", lambda x, y: opset1.matmul(x, y, True, True), (f(2, 5, 3), f(7, 5)))
    yield Operation("matmul vector", lambda x, y: opset1.matmul(x, y, True, True), (f(5), f(7, 5)))
    yield Operation("einsum", lambda x, y: opset7.einsum([x, y], "bij,bkj->bik"), (f(2, 3, 5), f(2, 4, 5)))


def _reductions() -> Iterable[Any]:
    for name in ("sum", "mean", "max", "min", "prod", "l1", "l2"):
        operator = getattr(opset4, f"reduce_{name}")
        yield Operation(f"reduce {name}", lambda x, op=operator: op(x, c([1, -1]), keep_dims=False), (f(2, 3, 5),))
    yield Operation("reduce kept", lambda x: opset1.reduce_sum(x, c(1), keep_dims=True), (f(2, 3, 5),))
    yield Operation("reduce int axes", lambda x: opset1.reduce_max(x, c([0], np.int32)), (f(2, 3, 5),))
    yield Operation("reduce none", lambda x: opset1.reduce_sum(x, c([])), (f(2, 3),), reference=True)
    yield Operation("reduce and", lambda x: opset1.reduce_logical_and(x, c([1])), (b(4, 2),))
    yield Operation("reduce or", lambda x: opset1.reduce_logical_or(x, c([1])), (b(4, 2),))
    yield Operation("softmax", lambda x: opset8.softmax(x, -1), (f(2, 3, 5),))
    yield Operation("softmax 1", lambda x: opset1.softmax(x, 1), (f(2, 3, 5),))
    yield Operation("log softmax", lambda x: opset5.log_softmax(x, 1), (f(2, 3, 5),))
    yield Operation("cum sum", lambda x: opset3.cum_sum(x, c(1), exclusive=True, reverse=True), (f(2, 5),))


def _transposed_to_computed_shapes() -> Iterable[Any]:
    """As TensorFlow's models have it: the sizes of the input times the strides. Windows are larger and smaller than strides."""
    factors, windows = c([2, 3]), (f(3, 4, 3, 4), f(3, 4, 1, 2))

    def shape(x: Any) -> Any:
        return opset1.multiply(opset1.strided_slice(opset3.shape_of(x), c([2]), c([4]), c([1]), [0], [0]), factors)

    modes = [("same_upper", [0, 0], [0, 0]), ("same_lower", [0, 0], [0, 1]), ("explicit", [1, 0], [0, 1])]
    for (mode, begins, padding), weights, x in product(modes, windows, (f(2, 3, 4, 5), f(1, 3, 5, 3))):
        if begins != [0, 0] and weights.shape[2] == 1:
            continue  # fewer elements than the shape has, which openvino refuses
        window = {"strides": [2, 3], "pads_begin": begins, "pads_end": [0, 0], "dilations": [1, 1], "output_padding": padding}
        yield Operation(
            f"transposed computed {mode} {weights.shape[2]} {x.shape[0]}",
            lambda x, w=weights, m=mode, k=window: opset1.convolution_backprop_data(
                x, opset13.constant(w), output_shape=shape(x), auto_pad=m, **k
            ),
            (x,),
            open=True,
        )
    yield Operation(
        "transposed shape open",
        lambda x: opset1.convolution_backprop_data(
            x, opset13.constant(windows[0]), strides=[2, 2], output_shape=c([8, 9]), auto_pad="same_upper"
        ),
        (f(2, 3, 4, 5),),
        open=True,
    )


def _windows() -> Iterable[Any]:
    pair = ([2, 1], [1, 0], [0, 1], [1, 2])
    yield Operation("convolution", lambda x, w: opset1.convolution(x, w, *pair), (f(2, 3, 9, 8), f(4, 3, 3, 2)))
    yield Operation("convolution int", lambda x, w: opset1.convolution(x, w, *pair), (i(2, 3, 9, 8), i(4, 3, 3, 2)))
    yield Operation("group int", lambda x, w: opset1.group_convolution(x, w, *pair), (i(2, 4, 9, 8), i(2, 3, 2, 3, 2)))
    yield Operation("convolution 1d", lambda x, w: opset1.convolution(x, w, [2], [1], [1], [1]), (f(2, 3, 9), f(4, 3, 3)))
    same = ([2, 2], [0, 0], [0, 0], [1, 1], "same_upper")
    yield Operation("convolution same", lambda x, w: opset1.convolution(x, w, *same), (f(2, 3, 9, 8), f(4, 3, 3, 2)))
    yield Operation("group convolution", lambda x, w: opset1.group_convolution(x, w, *pair), (f(2, 4, 9, 8), f(2, 3, 2, 3, 2)))
    yield Operation("depthwise", lambda x, w: opset1.group_convolution(x, w, *pair), (f(2, 4, 9, 8), f(4, 1, 1, 3, 2)))
    plain = {"strides": [2, 3], "pads_begin": [1, 0], "pads_end": [0, 1], "dilations": [1, 2]}
    yield Operation("transposed", lambda x, w: opset1.convolution_backprop_data(x, w, **plain), (f(2, 3, 4, 5), f(3, 4, 3, 2)))
    yield Operation(
        "transposed padding",
        lambda x, w: opset1.convolution_backprop_data(x, w, output_padding=[1, 1], **plain),
        (f(2, 3, 4, 5), f(3, 4, 3, 2)),
    )
    for mode in ("same_upper", "same_lower"):
        yield Operation(
            f"transposed shape {mode}",
            lambda x, w, mode=mode: opset1.convolution_backprop_data(
                x, w, strides=[2, 2], output_shape=c([8, 9]), pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1], auto_pad=mode
            ),
            (f(2, 3, 4, 5), f(3, 4, 3, 3)),
        )
    yield from _transposed_to_computed_shapes()
    yield Operation(
        "group transposed",
        lambda x, w: opset1.group_convolution_backprop_data(x, w, **plain),
        (f(2, 4, 4, 5), f(2, 2, 3, 3, 2)),
    )
    window = ([2, 1], [1, 0], [0, 1], [3, 2])
    for rounding in ("floor", "ceil"):
        yield Operation(f"avg pool {rounding}", lambda x, r=rounding: opset1.avg_pool(x, *window, True, r), (f(2, 3, 8, 7),))
        yield Operation(f"max pool {rounding}", lambda x, r=rounding: opset1.max_pool(x, *window, r), (f(2, 3, 8, 7),))
    yield Operation("avg pool padded", lambda x: opset1.avg_pool(x, *window, False), (f(2, 3, 8, 7),))
    yield Operation(
        "avg pool torch", lambda x: opset14.avg_pool(x, [2, 2], [0, 0], [0, 0], [2, 2], True, "ceil_torch"), (f(1, 2, 7, 5),)
    )
    yield Operation(
        "max pool indices",
        lambda x: opset8.max_pool(x, [2, 1], [1, 2], [1, 0], [0, 1], [3, 2], "floor", "explicit", "i64", 2),
        (f(2, 3, 8, 7),),
    )
    yield Operation(
        "max pool torch", lambda x: opset14.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], "ceil_torch"), (f(1, 2, 7, 5),)
    )
    yield Operation("adaptive avg", lambda x: opset8.adaptive_avg_pool(x, c([3, 4])), (f(2, 3, 8, 7),))
    yield Operation("adaptive max", lambda x: [opset8.adaptive_max_pool(x, c([3, 4]), "i32").output(0)], (f(2, 3, 8, 7),))


def _normalizations() -> Iterable[Any]:
    for axes in ([2, 3], [1, 2, 3], [1]):
        yield Operation(f"mvn {axes}", lambda x, a=axes: opset6.mvn(x, c(a), True, 1e-5, "inside_sqrt"), (f(2, 3, 4, 5),))
    yield Operation("mvn outside", lambda x: opset6.mvn(x, c([2, 3]), True, 1e-2, "outside_sqrt"), (f(2, 3, 4, 5),))
    last = opset4.range(c(-1), c(0), c(1), "i64")
    yield Operation("mvn computed axes", lambda x: opset6.mvn(x, last, True, 1e-5, "inside_sqrt"), (f(2, 3, 4, 5),))
    yield Operation("mvn mean", lambda x: opset6.mvn(x, c([2, 3]), False, 1e-2, "inside_sqrt"), (f(2, 3, 4, 5),))
    for mode in ("add", "max"):
        yield Operation(f"normalize l2 {mode}", lambda x, m=mode: opset1.normalize_l2(x, c([1]), 1e-3, m), (f(2, 3, 4, 5),))
    yield Operation("lrn", lambda x: opset1.lrn(x, c([1]), 0.5, 0.75, 1.0, 3), (f(2, 7, 4, 5),))
    stats = (f(3), f(3), f(3), f(3, low=0.5))
    yield Operation("batch norm", lambda x, g, h, m, v: opset5.batch_norm_inference(x, g, h, m, v, 1e-3), (f(2, 3, 4, 5), *stats))
    yield Operation("group norm", lambda x, g, h: opset12.group_normalization(x, g, h, 2, 1e-3), (f(2, 4, 3, 5), f(4), f(4)))
    ranges = [c(v, np.float32) for v in (-1.5, 1.25, -1.0, 2.0)]
    yield Operation("fake quantize", lambda x: opset1.fake_quantize(x, *ranges, 16), (f(2, 3, 5),))


def _shapes() -> Iterable[Any]:
    yield Operation("reshape", lambda x: opset1.reshape(x, c([0, -1]), True), (f(2, 3, 5),))
    yield Operation("reshape plain", lambda x: opset1.reshape(x, c([3, -1]), False), (f(2, 3, 5),))
    yield Operation("squeeze", lambda x: opset1.squeeze(x, c([0, 2])), (f(1, 3, 1, 5),))
    yield Operation("squeeze all", lambda x: opset15.squeeze(x), (f(1, 3, 1, 5),))
    yield Operation("unsqueeze", lambda x: opset1.unsqueeze(x, c([0, 3])), (f(3, 5),))
    yield Operation("transpose", lambda x: opset1.transpose(x, c([2, 0, 1])), (f(2, 3, 5),))
    yield Operation("transpose computed", lambda x: opset1.transpose(x, _reversed_order(3)), (f(2, 3, 5),))
    yield Operation("transpose reversed", lambda x: opset1.transpose(x, c([])), (f(2, 3, 5),))
    yield Operation("concat", lambda x, y: opset1.concat([x, y], 1), (f(2, 3), f(2, 5)))
    yield Operation("split", lambda x: opset1.split(x, c(1), 3), (f(2, 6),))
    yield Operation("variadic split", lambda x: opset1.variadic_split(x, c(1), c([2, -1, 1])), (f(2, 6),))
    yield Operation("tile", lambda x: opset1.tile(x, c([2, 1, 3])), (f(2, 3),))
    yield Operation("tile short", lambda x: opset1.tile(x, c([3])), (f(2, 3),))
    yield Operation("broadcast", lambda x: opset3.broadcast(x, c([2, 3, 5])), (f(3, 1),))
    yield Operation("broadcast both", lambda x: opset3.broadcast(x, c([1, 5]), broadcast_spec="BIDIRECTIONAL"), (f(3, 1),))
    yield Operation("broadcast axes", lambda x: opset3.broadcast(x, c([2, 3, 5]), c([1]), "EXPLICIT"), (f(3),))
    yield Operation("shape of", lambda x: opset3.shape_of(x, "i32"), (f(2, 3, 5),))
    yield Operation("range", lambda x: opset4.range(c(1), opset1.squeeze(x, c(0)), c(2), "i64"), (np.int64([9]),))
    yield Operation("depth to space", lambda x: opset1.depth_to_space(x, "blocks_first", 2), (f(1, 8, 2, 3),))
    yield Operation("depth to space depth", lambda x: opset1.depth_to_space(x, "depth_first", 2), (f(1, 8, 2, 3),))
    yield Operation("space to depth", lambda x: opset1.space_to_depth(x, "blocks_first", 2), (f(1, 3, 4, 6),))
    yield Operation("space to depth depth", lambda x: opset1.space_to_depth(x, "depth_first", 2), (f(1, 3, 4, 6),))
    yield Operation("shuffle channels", lambda x: opset3.shuffle_channels(x, 1, 3), (f(2, 6, 3),))
    for mode in ("constant", "edge", "reflect", "symmetric"):
        value = c(0.5, np.float32) if mode == "constant" else None
        yield Operation(f"pad {mode}", lambda x, m=mode, v=value: opset12.pad(x, c([0, 2]), c([1, 1]), m, v), (f(3, 5),))
    hot = (c(1.5, np.float32), c(-0.5, np.float32))
    yield Operation("one hot", lambda x: opset1.one_hot(x, c(4), *hot, 1), (np.int32([[0, 3, 5], [-1, 2, 1]]),))


def _reversed_order(rank: int) -> Any:
    """rank - 1, ..., 0 by one operation after another, as a file has it that nobody simplified."""
    last = opset1.subtract(opset8.gather(c([9, rank]), c(1), c(0)), c(1))
    halves = [opset1.subtract(last, opset4.range(c(a), c(b), c(1), "i64")) for a, b in ((0, 1), (1, rank))]
    joined = opset1.multiply(opset1.concat(halves, 0), c([1]))
    return opset1.squeeze(opset1.unsqueeze(opset1.reshape(opset1.convert(joined, "i32"), c([-1]), False), c(0)), c(0))


def _slices() -> Iterable[Any]:
    def opset1_reverse(x: Any, axes: Any, mode: str) -> Any:
        return NodeFactory("opset1").create("Reverse", [x, axes], {"mode": mode})

    def strided(begin: Any, end: Any, strides: Any, **masks: Any) -> Callable[[Any], Any]:
        given = {"begin_mask": [0] * len(begin), "end_mask": [0] * len(begin), **masks}
        return lambda x: opset1.strided_slice(x, c(begin), c(end), c(strides), **given)

    x = (f(4, 5, 6, 7),)
    yield Operation("slice", lambda x: opset8.slice(x, c([1, -1]), c([3, -5]), c([1, -2]), c([0, 3])), x)
    yield Operation("slice all axes", lambda x: opset8.slice(x, c([1]), c([3]), c([1])), x)
    yield Operation("strided", strided([1, 2], [3, 5], [1, 2]), x)
    yield Operation("strided masks", strided([1, 2, 9], [9, 3, 1], [1, 1, -1], begin_mask=[1, 0, 1], end_mask=[0, 1, 0]), x)
    yield Operation("strided shrink", strided([1, -1], [2, 9], [1, 1], shrink_axis_mask=[0, 1]), x)
    yield Operation("strided new", strided([0, 1, 0], [0, 3, 2], [1, 1, 1], new_axis_mask=[1, 0, 0]), x)
    yield Operation("strided ellipsis", strided([0, 1], [0, 3], [1, 1], ellipsis_mask=[1, 0]), x)
    yield Operation(
        "strided everything",
        strided(
            [0, 2, 0, 1],
            [0, 9, 0, 3],
            [1, 1, 1, 2],
            shrink_axis_mask=[0, 1, 0, 0],
            new_axis_mask=[1, 0, 0, 0],
            ellipsis_mask=[0, 0, 1, 0],
        ),
        x,
    )
    yield Operation(
        "strided computed",
        lambda x, begin: opset1.strided_slice(x, begin, opset1.add(begin, c([2, 2])), c([1, 1]), [0, 1], [1, 0]),
        (f(4, 5, 6), np.int64([1, 2])),
    )
    yield Operation(
        "strided computed shrink",
        lambda x, begin: opset1.strided_slice(x, begin, opset1.add(begin, c([2, 2])), c([1, 1]), [0, 0], [0, 0], [0, 0], [0, 1]),
        (f(4, 5, 6), np.int64([1, -1])),
    )
    yield Operation("reverse", lambda x: opset1_reverse(x, c([0, 2]), "index"), (f(2, 3, 5),))
    yield Operation("reverse mask", lambda x: opset1_reverse(x, c([True, False, True], bool), "mask"), (f(2, 3, 5),))
    yield Operation("roll", lambda x: opset7.roll(x, c([2, -1]), c([0, 2])), (f(3, 4, 5),))
    yield Operation("reverse sequence", lambda x, n: opset1.reverse_sequence(x, n, 0, 1), (f(3, 5, 2), np.int32([2, 5, 1])))
    for batch, time in ((1, 0), (0, 2), (2, 0), (3, 1), (1, -1)):
        lengths = np.int32([2, 5, 1, 3, 4][: (3, 4, 5, 2)[batch]])
        yield Operation(
            f"reverse sequence {batch} {time}",
            lambda x, n, batch=batch, time=time: opset1.reverse_sequence(x, n, batch, time),
            (f(3, 4, 5, 2), np.minimum(lengths, (3, 4, 5, 2)[time])),
        )


def _indices() -> Iterable[Any]:
    yield Operation("gather", lambda x, n: opset1.gather(x, n, c(1)), (f(2, 5, 3), i(2, 4, low=0, high=5)))
    yield Operation("gather 8", lambda x, n: opset8.gather(x, n, c(-1), 0), (f(2, 5, 3), i(4, low=-3, high=3)))
    yield Operation("gather batch", lambda x, n: opset8.gather(x, n, c(1), 1), (f(2, 5, 3), i(2, 4, low=0, high=5)))
    yield Operation("gather batch far", lambda x, n: opset8.gather(x, n, c(3), 1), (f(2, 3, 4, 5), i(2, 6, 2, low=0, high=5)))
    yield Operation("gather elements", lambda x, n: opset6.gather_elements(x, n, 1), (f(2, 5), i(2, 3, low=0, high=5)))
    for dtype in (np.uint8, np.uint32, np.uint64, np.int16):
        whole = i(2, 3, low=0, high=5, dtype=dtype)
        yield Operation(f"gather {dtype.__name__}", lambda x, n: opset8.gather(x, n, c(1), 0), (f(2, 5, 3), whole))
        order = np.stack([RNG.permutation(5)[:3] for _ in range(2)]).astype(dtype)
        yield Operation(
            f"scatter elements {dtype.__name__}",
            lambda x, n, u: opset3.scatter_elements_update(x, n, u, c(1)),
            (f(2, 5), order, f(2, 3)),
        )
    yield Operation("gather nd", lambda x, n: opset8.gather_nd(x, n), (f(3, 4, 5), i(6, 2, low=0, high=3)))
    yield Operation("gather nd batch", lambda x, n: opset8.gather_nd(x, n, 1), (f(3, 4, 5), i(3, 2, 1, low=0, high=4)))
    yield Operation("gather nd batch 5", lambda x, n: opset5.gather_nd(x, n, 2), (f(3, 4, 5, 2), i(3, 4, 1, low=0, high=5)))
    yield Operation(
        "scatter elements",
        lambda x, u: opset12.scatter_elements_update(x, c([[0, 3, 1], [4, 0, 2]]), u, c(1), "sum", True),
        (f(2, 5), f(2, 3)),
    )
    yield Operation(
        "scatter elements 3", lambda x, u: opset3.scatter_elements_update(x, c([[1], [0]]), u, c(1)), (f(2, 5), f(2, 1))
    )
    yield Operation("scatter nd", lambda x, u: opset4.scatter_nd_update(x, c([[1], [3]]), u), (f(4, 5), f(2, 5)))
    yield Operation("scatter nd sum", lambda x, u: opset15.scatter_nd_update(x, c([[1], [3]]), u, "sum"), (f(4, 5), f(2, 5)))
    yield Operation("scatter", lambda x, u: opset3.scatter_update(x, c([[2, 0]]), u, c(0)), (f(4, 5), f(1, 2, 5)))
    yield Operation("scatter axis", lambda x, u: opset3.scatter_update(x, c([2, 0]), u, c(1)), (f(4, 5, 3), f(4, 2, 3)))
    yield Operation("non zero", lambda x: opset3.non_zero(x, "i32"), (i(3, 4, low=-1, high=2),))
    yield Operation("unique", lambda x: opset10.unique(x, None, True, "i32", "i64"), (i(9, low=0, high=4),))
    yield Operation("top k", lambda x: opset3.topk(x, c(3), 1, "max", "value"), (f(3, 7),))
    yield Operation("top k min", lambda x: opset11.topk(x, c(3), -1, "min", "value", "i64"), (f(3, 7),))
    yield Operation("top k index", lambda x: opset11.topk(x, c(3), 0, "max", "index"), (f(7, 3),))


def _interpolations() -> Iterable[Any]:
    def sizes(mode: str, transformation: str = "half_pixel", to: Any = (7, 4), **more: Any) -> Callable[[Any], Any]:
        given = {"mode": mode, "shape_calculation_mode": "sizes", "coordinate_transformation_mode": transformation, **more}
        return lambda x: opset11.interpolate(x, c(to), axes=c([2, 3]), **given)

    x = (f(1, 2, 5, 6),)
    for mode in ("nearest", "linear_onnx", "linear", "cubic"):
        for transformation in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            yield Operation(f"interpolate {mode} {transformation}", sizes(mode, transformation), x)
    for nearest in ("round_prefer_ceil", "floor", "ceil"):
        yield Operation(f"interpolate {nearest}", sizes("nearest", nearest_mode=nearest), x)
    yield Operation("interpolate simple", sizes("nearest", "asymmetric", (10, 12), nearest_mode="simple"), x)
    yield Operation("interpolate pillow", sizes("bilinear_pillow", to=(3, 4)), x)
    yield Operation("interpolate pillow cubic", sizes("bicubic_pillow", to=(3, 4), cube_coeff=-0.5), x)
    yield Operation("interpolate padded", sizes("linear_onnx", pads_begin=[0, 0, 1, 0], pads_end=[0, 0, 0, 2]), x)
    yield Operation(
        "interpolate scales",
        lambda x: opset11.interpolate(x, c([1.5, 0.7], np.float32), "linear_onnx", "scales", axes=c([2, 3])),
        x,
    )
    scaled = {"mode": "nearest", "shape_calculation_mode": "scales", "coordinate_transformation_mode": "asymmetric"}
    scaled |= {"nearest_mode": "floor", "pads_begin": [], "pads_end": [], "antialias": False, "cube_coeff": -0.75}
    yield Operation(
        "interpolate 4",
        lambda x: NodeFactory("opset4").create("Interpolate", [x, c([10, 9]), c([2.0, 1.5], np.float32), c([2, 3])], scaled),
        x,
    )


def _samplings() -> Iterable[Any]:
    x, rois = f(2, 3, 9, 11), np.float32([[0, 0, 8, 7], [1.5, 2.2, 6.1, 8.9], [3, 1, 3.2, 1.1], [-1, -2, 14, 13]])
    batch = np.int32([0, 1, 1, 0])
    for mode, aligned, samples in (
        ("avg", "asymmetric", 0),
        ("avg", "half_pixel", 2),
        ("avg", "half_pixel_for_nn", 0),
        ("max", "asymmetric", 1),
        ("max", "half_pixel", 3),
    ):
        yield Operation(
            f"roi align {mode} {aligned} {samples}",
            lambda *given, mode=mode, aligned=aligned, samples=samples: opset9.roi_align(
                *given, 2, 3, samples, 0.5, mode, aligned
            ),
            (abs(x) if mode == "max" else x, rois, batch),  # OpenVINO's CPU plugin begins at 0 where it looks for the largest
        )
    yield Operation("roi align 3", lambda *given: opset3.roi_align(*given, 2, 3, 2, 0.5, "avg"), (x, rois, batch))
    grid = f(2, 4, 5, 2, low=-1.6, high=1.6)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding, corners in (("zeros", True), ("border", False), ("reflection", False)):
            given = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            yield Operation(f"grid sample {mode} {padding}", lambda x, g, given=given: opset9.grid_sample(x, g, given), (x, grid))


def _detections() -> Iterable[Any]:
    corners = RNG.uniform(0, 8, (2, 11, 2))
    boxes = np.concatenate([corners, corners + RNG.uniform(1, 5, (2, 11, 2))], axis=2).astype(np.float32)
    scores = RNG.permutation(2 * 3 * 11).reshape(2, 3, 11).astype(np.float32) / 66
    limits = (c(4), c(0.3, np.float32), c(0.2, np.float32))
    for order in (False, True):
        yield Operation(
            f"nms {order}",
            lambda x, s, order=order: opset9.non_max_suppression(x, s, *limits, sort_result_descending=order, output_type="i64"),
            (boxes, scores),
        )
    yield Operation(
        "nms centers",
        lambda x, s: opset5.non_max_suppression(x, s, *limits, box_encoding="center", output_type="i32"),
        (boxes, scores),
    )


FAMILIES = (
    _unary,
    _binary,
    _matrices,
    _reductions,
    _windows,
    _normalizations,
    _shapes,
    _slices,
    _indices,
    _interpolations,
    _samplings,
    _detections,
    *FURTHER,
)
OPERATIONS = {operation.name: operation for family in FAMILIES for operation in family()}
