"""Graphs of recurrent layers, attention, control flow, and shapes that are known at run time only; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import (
    opset1,
    opset3,
    opset4,
    opset5,
    opset6,
    opset8,
    opset11,
    opset12,
    opset13,
)

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c = (_GRAPHS[name] for name in ("Operation", "f", "i", "c"))


def _recurrent() -> Iterable[Any]:
    def weights(gates: int, directions: int, size: int, hidden: int, bias: int) -> tuple[Any, ...]:
        return f(directions, gates * hidden, size), f(directions, gates * hidden, hidden), f(directions, bias * hidden)

    x, lengths = f(3, 5, 4), np.int32([5, 3, 4])
    for direction, d in (("FORWARD", 1), ("REVERSE", 1), ("BIDIRECTIONAL", 2)):
        state = f(3, d, 2)
        yield Operation(
            f"lstm {direction}",
            lambda x, h, s, n, w, r, b, direction=direction: opset5.lstm_sequence(x, h, s, n, w, r, b, 2, direction),
            (x, state, f(3, d, 2), lengths, *weights(4, d, 4, 2, 4)),
        )
        for linear in (False, True):
            yield Operation(
                f"gru {direction} {linear}",
                lambda x, h, n, w, r, b, v=direction, k=linear: opset5.gru_sequence(
                    x, h, n, w, r, b, 2, v, linear_before_reset=k
                ),
                (x, state, lengths, *weights(3, d, 4, 2, 3 + linear)),
            )
        yield Operation(
            f"rnn {direction}",
            lambda x, h, n, w, r, b, direction=direction: opset5.rnn_sequence(x, h, n, w, r, b, 2, direction),
            (x, state, lengths, *weights(1, d, 4, 2, 1)),
        )
    one, states, cells = f(3, 4), f(3, 2), f(3, 2)
    flat = [w[0] for w in weights(4, 1, 4, 2, 4)]
    yield Operation("lstm cell", lambda x, h, s, w, r, b: opset4.lstm_cell(x, h, s, w, r, b, 2), (one, states, cells, *flat))
    flat = [w[0] for w in weights(3, 1, 4, 2, 3)]
    yield Operation("gru cell", lambda x, h, w, r, b: opset3.gru_cell(x, h, w, r, b, 2), (one, states, *flat))
    flat = [w[0] for w in weights(1, 1, 4, 2, 1)]
    yield Operation("rnn cell", lambda x, h, w, r, b: opset3.rnn_cell(x, h, w, r, b, 2, ["relu"], [], []), (one, states, *flat))


def _attention() -> Iterable[Any]:
    sdpa = opset13.scaled_dot_product_attention
    qkv = (f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 6))
    yield Operation("attention", sdpa, qkv)
    yield Operation("attention causal", lambda q, k, v: sdpa(q, k, v, causal=True), qkv)
    yield Operation("attention mask", lambda q, k, v, m: sdpa(q, k, v, m), (*qkv, f(2, 1, 5, 7)))
    yield Operation("attention bools", lambda q, k, v, m: sdpa(q, k, v, m), (*qkv, np.triu(np.ones((5, 7), bool))))
    yield Operation("attention scale", lambda q, k, v, m: sdpa(q, k, v, m, c(0.3, np.float32)), (*qkv, f(5, 7)))
    yield Operation("attention scale computed", lambda q, k, v, m, s: sdpa(q, k, v, m, s), (*qkv, f(5, 7), f(low=0.2, high=0.5)))
    yield Operation("attention heads", sdpa, (f(2, 5, 4), f(2, 7, 4), f(2, 7, 6)))
    blocks = (f(2, 3, 2, 5, 4), f(2, 3, 2, 7, 4), f(2, 3, 2, 7, 6))
    yield Operation("attention blocks", sdpa, blocks)
    yield Operation("attention blocks open", sdpa, blocks, open=True)
    yield Operation("attention blocks causal", lambda q, k, v: sdpa(q, k, v, causal=True), blocks)
    for lead in ((), (3, 1), (2, 1, 2), (1, 1, 1)):
        yield Operation(f"attention blocks mask {len(lead)}{lead[:1]}", sdpa, (*blocks, f(*lead, 5, 7)))
    yield Operation("attention shared", sdpa, (f(2, 3, 5, 4), f(1, 3, 7, 4), f(2, 1, 7, 6)))
    yield Operation("attention shared heads", sdpa, (f(2, 5, 4), f(1, 7, 4), f(2, 7, 6), f(2, 5, 7)))


def _loop(trips: int, x: Any, start: Any) -> Any:
    part = opset13.parameter([2, 1, 3], np.float32)
    state = opset13.parameter([2, 1, 3], np.float32)
    number = opset13.parameter([1], np.int64)
    total = opset13.add(opset13.multiply(part, state), opset13.convert(number, "f32"))
    going = opset13.less(opset13.reduce_sum(total, c([0, 1, 2])), c(1e6, np.float32))
    body = ov.Model([opset13.result(total), opset13.result(going)], [number, part, state], "body")
    loop = opset13.loop(c(trips), c(True, bool))
    loop.set_function(body)
    loop.set_special_body_ports([0, 1])
    loop.set_sliced_input(part, x.output(0), 0, 1, 1, -1, 1)
    loop.set_merged_input(state, start.output(0), total.output(0))
    return [loop.get_iter_value(total.output(0), -1), loop.get_concatenated_slices(total.output(0), 0, 1, 1, -1, 1)]


def _iterator(stride: int, x: Any, start: Any) -> Any:
    part, state = opset13.parameter([2, 2, 3], np.float32), opset13.parameter([2, 2, 3], np.float32)
    total = opset13.add(part, state)
    iterator = opset13.tensor_iterator()
    begin, end = (0, -1) if stride > 0 else (-1, 0)
    iterator.set_body(ov.Model([opset13.result(total)], [part, state], "body"))
    iterator.set_sliced_input(part, x.output(0), begin, stride, 2, end, 1)
    iterator.set_merged_input(state, start.output(0), total.output(0))
    return [
        iterator.get_iter_value(total.output(0), -1),
        iterator.get_concatenated_slices(total.output(0), begin, stride, 2, end, 1),
    ]


def _if(condition: Any, x: Any, y: Any) -> Any:
    a, b, d = (opset13.parameter([2, 3], np.float32) for _ in range(3))
    node = opset13.if_op(condition)
    then = ov.Model([opset13.result(opset13.add(a, b))], [a, b])
    other = ov.Model([opset13.result(opset13.negative(d))], [d])
    node.set_then_body(then)
    node.set_else_body(other)
    node.set_input(x.output(0), a, d)
    node.set_input(y.output(0), b, None)
    return [node.set_output(then.results[0], other.results[0])]


def _control() -> Iterable[Any]:
    feeds = (f(2, 5, 3), f(2, 1, 3))
    yield Operation("loop", lambda x, s: _loop(5, x, s), feeds)
    for stride in (2, -2):
        yield Operation(f"tensor iterator {stride}", lambda x, s, n=stride: _iterator(n, x, s), (f(2, 6, 3), f(2, 2, 3)))
    for value in (True, False):
        yield Operation(f"if {value}", _if, (np.array(value), f(2, 3), f(2, 3)))


def _open() -> Iterable[Any]:
    """Shapes that are known at run time only."""
    yield Operation("open relu", opset1.relu, (f(2, 3),), open=True)
    yield Operation("open batch 0", opset1.relu, (f(0, 3),), open=True)
    yield Operation("open reshape", lambda x: opset1.reshape(x, c([0, -1]), True), (f(2, 3, 5),), open=True)
    yield Operation("open mvn", lambda x: opset6.mvn(x, c([1, 2]), True, 1e-5, "inside_sqrt"), (f(2, 3, 5),), open=True)
    yield Operation("open split", lambda x: opset1.variadic_split(x, c(1), c([2, -1])), (f(2, 6),), open=True)
    yield Operation(
        "open gather batch", lambda x, n: opset8.gather(x, n, c(1), 1), (f(2, 5, 3), i(2, 4, low=0, high=5)), open=True
    )
    yield Operation(
        "open interpolate",
        lambda x: opset11.interpolate(x, c([7, 9]), "linear_onnx", "sizes", axes=c([2, 3])),
        (f(1, 2, 5, 6),),
        open=True,
    )
    yield Operation("open adaptive avg", lambda x: opset8.adaptive_avg_pool(x, c([1, 1])), (f(2, 3, 4, 5),), open=True)
    yield Operation(
        "open adaptive max", lambda x: [opset8.adaptive_max_pool(x, c([1, 1]), "i32").output(0)], (f(2, 3, 4, 5),), open=True
    )
    yield Operation("open pad", lambda x: opset12.pad(x, c([0, -1]), c([1, 2]), "constant"), (f(3, 5),), open=True)


FAMILIES = (_recurrent, _attention, _control, _open)
