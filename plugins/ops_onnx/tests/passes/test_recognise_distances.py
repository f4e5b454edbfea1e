"""Scans over the rows of a matrix: distances in one operator, with the results of onnxruntime."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

RNG = np.random.default_rng(6)
ROWS = RNG.standard_normal((5, 3)).astype(np.float32)
node = helper.make_node


def value(name: str, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(
    *nodes: Any,
    results: tuple[str, str] = ("same", "sum"),
    outputs: tuple[str, ...] = ("state", "y"),
    shapes: tuple[Any, Any] = ((None, 3), (None,)),
    axis: int = 1,
    **attributes: Any,
) -> bytes:
    """A scan over ROWS with the state x; the body begins with `same`, which is `matrix`, and `d`, which is `matrix - row`."""
    first = [node("Identity", ["matrix"], ["same"]), node("Sub", ["matrix", "row"], ["d"])]
    body = helper.make_graph(
        [*first, *nodes],
        "body",
        [value("matrix", shapes[0]), value("row", shapes[1])],
        [value(name, None) for name in results],
        [numpy_helper.from_array(np.array([axis]), "axes")],
    )
    scan = node("Scan", ["x", "rows"], ["state", "stack"], body=body, num_scan_inputs=1, **attributes)
    end = node("Neg", ["stack"], ["y"])
    rows = numpy_helper.from_array(ROWS, "rows")
    graph = helper.make_graph([scan, end], "g", [value("x", [None, 3])], [value(name, None) for name in outputs], [rows])
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    return content


SQUARES = node("ReduceSumSquare", ["d", "axes"], ["sum"], keepdims=0)
ABS, TOTAL = node("Abs", ["d"], ["e"]), node("ReduceSum", ["e", "axes"], ["sum"], keepdims=0)
OTHER_WAY = [node("Sub", ["row", "same"], ["r"]), node("Mul", ["r", "r"], ["e"]), TOTAL]

FORMS = {
    "squares": model(SQUARES),
    "last axis": model(SQUARES, axis=-1),
    "absolute values": model(ABS, TOTAL),
    "product": model(node("Mul", ["d", "d"], ["e"]), TOTAL),
    "row less matrix": model(*OTHER_WAY),
    "through identities": model(SQUARES, node("Identity", ["sum"], ["end"]), results=("same", "end")),
    "its state unread": model(SQUARES, outputs=("y",)),
}
OTHERS = {
    "a state that changes": model(SQUARES, node("Add", ["matrix", "row"], ["next"]), results=("next", "sum")),
    "the other axis": model(SQUARES, axis=0),
    "axes that stay": model(node("ReduceSumSquare", ["d", "axes"], ["sum"], keepdims=1)),
    "backwards": model(SQUARES, scan_input_directions=[1]),
    "results backwards": model(SQUARES, scan_output_directions=[1]),
    "columns of results": model(SQUARES, scan_output_axes=[1]),
    "a sum of differences": model(node("ReduceSum", ["d", "axes"], ["sum"], keepdims=0)),
    "all axes": model(node("ReduceSumSquare", ["d"], ["sum"], keepdims=0)),
    "the matrix alone": model(node("ReduceSumSquare", ["matrix", "axes"], ["sum"], keepdims=0)),
    "difference of the matrix and itself": model(
        node("Sub", ["matrix", "same"], ["r"]), node("ReduceSumSquare", ["r", "axes"], ["sum"], keepdims=0)
    ),
    "a product of two": model(node("Mul", ["d", "matrix"], ["e"]), TOTAL),
    "unknown ranks": model(SQUARES, shapes=(None, None)),
}


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("name", [*FORMS, *OTHERS])
def test_results_are_those_of_onnxruntime(name: str, rows: int) -> None:
    content = (FORMS | OTHERS)[name]
    feed = {"x": RNG.standard_normal((rows, 3)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(content).run(None, feed)
    core = dovetail.Core()
    with core.compile_model(core.read_model(content, "onnx"), "NUMPY") as compiled:
        for ours, theirs in zip(compiled(feed).values(), expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        kinds = {kind.split("::")[-1].split(")")[0] for kind in str(compiled.report()).split("(")}
        assert ("PairwiseDistances" in kinds, "Scan" in kinds) == (name in FORMS, name in OTHERS)
