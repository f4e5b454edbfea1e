"""Loops that add up or compare rows, as PyTorch exports EmbeddingBag: one operator, with the results of the loop."""

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import dovetail

RNG = np.random.default_rng(11)
W = RNG.standard_normal((50, 4)).astype(np.float32)
INDICES = RNG.integers(-50, 50, 40)
BODY = """a = Gather <axis = 0> (starts, i) b = Gather <axis = 0> (ends, i) a1 = Unsqueeze(a, zero) b1 = Unsqueeze(b, zero)
    part = Slice(indices, a1, b1, zero) rows = Gather <axis = 0> (w, part)"""
SUM = f"{BODY} t = ReduceSum <keepdims = 0> (rows, zero) k = Cast <to = 9> (going)"
MEAN = f"{BODY} t = ReduceMean <keepdims = 0, axes = [0]> (rows) k = Identity(true)"

MAX = f"{BODY} t = ReduceMax <keepdims = 0, axes = [0]> (rows) k = Identity(true)"


def model(body, kind="float", rank="", weights="w"):
    return f"""<ir_version: 8, opset_import: ["": 17]>
    graph ({kind}[r, d] w, int64[n] indices, int64[b] starts, int64[c] ends, int64 count) => ({kind}[e, f{rank}] y)
    <int64[1] zero = {{0}}, int64[1] last = {{1}}, bool true = {{1}}> {{
        y = Loop <body = inner (int64 i, bool going) => (bool k, {kind}[f{rank}] t) {{ {body} }}> (count, true)
    }}"""


def run(text, feeds, device="NUMPY"):
    made = parser.parse_model(text).SerializeToString()
    core = dovetail.Core()
    with core.compile_model(core.read_model(made, format="onnx"), device) as compiled:
        found = compiled(feeds)[0]
        return made, found, {node.op for node in compiled.report().nodes}


def given(starts, ends, count=None, w=W):
    count = len(starts) if count is None else count
    return {"w": w, "indices": INDICES, "starts": np.array(starts), "ends": np.array(ends), "count": np.array(count)}


SEGMENTS = {
    "one after the other": ([0, 3, 9], [3, 9, 40]),
    "empty ones": ([0, 3, 3, 40], [3, 3, 9, 40]),
    "in any order, overlapping": ([30, 0, 5], [35, 20, 6]),
    "from the end, and too far": ([-5, -100, 2], [-1, 3, 9223372036854775807]),
    "ends before they start": ([7, 2], [3, 4]),
}


@pytest.mark.parametrize("device", sorted({info.type for info in dovetail.Core().devices}))
@pytest.mark.parametrize("segments", SEGMENTS.values(), ids=SEGMENTS)
def test_sums_are_those_of_onnxruntime(segments, device):
    made, found, ops = run(model(SUM), feeds := given(*segments), device)
    np.testing.assert_allclose(found, onnxruntime.InferenceSession(made).run(None, feeds)[0], rtol=1e-5, atol=1e-5)
    assert "Loop" not in ops


def test_means_are_those_of_onnxruntime():
    made, found, ops = run(model(MEAN), feeds := given(*SEGMENTS["one after the other"]))
    np.testing.assert_allclose(found, onnxruntime.InferenceSession(made).run(None, feeds)[0], rtol=1e-5, atol=1e-5)
    assert "Loop" not in ops


def test_maxima_are_those_of_onnxruntime_and_those_of_no_rows_those_of_reduce_max():
    made, found, ops = run(model(MAX), feeds := given(*SEGMENTS["one after the other"]))
    np.testing.assert_array_equal(found, onnxruntime.InferenceSession(made).run(None, feeds)[0])
    assert "Loop" not in ops
    _, found, _ = run(model(MAX), given([0, 3, 3], [3, 3, 9]))
    np.testing.assert_array_equal(found, [W[INDICES[:3]].max(0), np.full(4, -np.inf), W[INDICES[3:9]].max(0)])


def test_fewer_iterations_than_segments_and_none():
    _, found, _ = run(model(SUM), given(*SEGMENTS["one after the other"], count=2))
    assert found.shape == (2, 4)
    _, found, _ = run(model(SUM), given(*SEGMENTS["one after the other"], count=0))
    assert found.shape == (0, 4)


def test_many_rows_in_blocks():
    w = RNG.standard_normal((1000, 64))
    lengths = RNG.integers(0, 900, 60)
    ends = np.cumsum(lengths)
    feeds = {"w": w, "indices": RNG.integers(0, 1000, int(ends[-1])), "starts": ends - lengths, "ends": ends}
    _, found, ops = run(model(SUM, "double"), feeds | {"count": np.array(60)})
    expected = [w[feeds["indices"][a:b]].sum(0) for a, b in zip(feeds["starts"], feeds["ends"], strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert "Loop" not in ops


def test_numbers_and_segments_that_are_not_there_are_errors():
    with pytest.raises(dovetail.DovetailError, match="is outside axis 0 of size 50"):
        run(model(SUM), given([0], [3]) | {"indices": np.array([1, 50, 2])})
    with pytest.raises(dovetail.DovetailError, match="there are 1 ends"):
        run(model(SUM), given([0, 1], [3], count=2))


OTHERS = {
    "integers": model(SUM, "int64"),
    "another axis": model(SUM.replace("(rows, zero)", "(rows, last)")),
    "the axis kept": model(SUM.replace("keepdims = 0", "keepdims = 1"), rank=", g"),
    "a condition that is computed": model(SUM.replace("Cast <to = 9> (going)", "Less(i, i)")),
    "bounds of the iteration before": model(
        SUM.replace("(starts, i)", "(starts, j)").replace("a =", "z = Sub(i, i) j = Sub(z, i) a =")
    ),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_loops_stay(text):
    starts, ends = [0, 4, 8], [4, 8, 12]
    w = W.astype(np.int64) if text == OTHERS["integers"] else W
    made, found, ops = run(text, feeds := given(starts, ends, w=w))
    np.testing.assert_allclose(found, onnxruntime.InferenceSession(made).run(None, feeds)[0], rtol=1e-5, atol=1e-5)
    assert "Loop" in ops
