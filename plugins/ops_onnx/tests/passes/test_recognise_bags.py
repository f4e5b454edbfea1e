"""Loops that list reductions of rows, as PyTorch's newer exporter writes EmbeddingBag, with the results of onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import dovetail

RNG = np.random.default_rng(5)
W = RNG.standard_normal((12, 3)).astype(np.float32)
TYPES = {info.type for info in dovetail.Core().devices}
SUM = "r = ReduceSum <keepdims = 1> (rows, zero)"
MEAN = """before = Sub(n, i1) is_last = Equal(i, before)
    r = If (is_last) <then_branch = t1 () => (float[1, d] r1) {
        s = ReduceSum <keepdims = 1> (rows, zero) all = Shape <start = 0, end = 1> (x) left = Sub(all, a)
        none = CastLike(i0, left) some = Greater(left, none)
        r1 = If (some) <then_branch = t2 () => (float[1, d] r2) { f = Cast <to = 1> (left) r2 = Div(s, f) },
            else_branch = e2 () => (float[1, d] r3) { r3 = Identity(s) }>
    }, else_branch = e1 () => (float[1, d] r4) { r4 = ReduceMean <keepdims = 1> (rows, zero) }>"""
MAX = """before = Sub(n, i1) is_last = Equal(i, before)
    part = If (is_last) <then_branch = t1 () => (float[k, d] p1) { p1 = Slice(w, a, size) },
        else_branch = e1 () => (float[l, d] p2) { p2 = Slice(w, a, b) }>
    r = ReduceMax <keepdims = 1> (part, zero)"""
REDUCTIONS = {"sum": SUM, "mean": MEAN, "max": MAX}


def model(reduction=SUM, dims="m", bags="n = Size(given)", begin="more = Less(i0, n)", size="size = Shape(x)"):
    rows = "" if reduction == MAX else "rows = Slice(w, a, b)"
    return f"""<ir_version: 10, opset_import: ["": 20]>
    graph (float[q, d] w, int64[q] x, int64[{dims}] given) => (float[e, d] y)
    <int64 i0 = {{0}}, int64 i1 = {{1}}, int64 i2 = {{2}}, int64[1] zero = {{0}}, int64[1] flat = {{-1}},
        float[1, 3] nothing = {{0, 0, 0}}> {{
        {size} {bags} o = Concat <axis = 0> (given, size) empty = SequenceEmpty() {begin}
        list, end = Loop ("", more, empty, i0) <body = inner (int64 count, bool going, seq(float[1, d]) l, int64 i)
                => (bool k, seq(float[1, d]) l1, int64 j) {{
            v = Reshape(i, flat) c1 = CastLike(i1, v) v1 = Add(v, c1) a = Slice(o, v, v1) c2 = CastLike(i2, v) v2 = Add(v, c2)
            b = Slice(o, v1, v2) same = Equal(a, b)
            row = If (same) <then_branch = t () => (float[1, d] r0) {{ r0 = Identity(nothing) }},
                else_branch = e () => (float[1, d] r) {{ {rows} {reduction} }}>
            l1 = SequenceInsert(l, row) j = Add(i, i1) k = Less(j, n)
        }}> y = ConcatFromSequence <axis = 0> (list)
    }}"""


def run(text, offsets, device="NUMPY"):
    feeds = {"w": W, "x": np.arange(len(W)), "given": np.array(offsets)}
    made = parser.parse_model(text).SerializeToString()
    core = dovetail.Core()
    with core.compile_model(core.read_model(made, format="onnx"), device) as compiled:
        found = compiled(feeds)[0]
        ops = {node.op for node in compiled.report().nodes}
    np.testing.assert_allclose(found, onnxruntime.InferenceSession(made).run(None, feeds)[0], rtol=1e-5, atol=1e-6)
    return ops


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("offsets", [[0, 2, 2, 7], [0], [3, 12], [0, 0, 5, 12, 12]], ids=str)
def test_bags_are_reduced_as_by_onnxruntime(reduction, offsets):
    ops = run(model(REDUCTIONS[reduction]), offsets)
    assert "dovetail::SegmentReduction" in ops
    assert "dovetail::CollectingLoop" not in ops


@pytest.mark.parametrize("device", sorted(TYPES))
def test_means_on_devices(device):
    assert "dovetail::SegmentReduction" in run(model(MEAN), [0, 2, 2, 7], device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_known_number_of_bags(reduction):
    body = REDUCTIONS[reduction].replace("Sub(n, i1)", "Identity(i1)").replace("Shape <start = 0, end = 1> (x)", "Identity(size)")
    text = model(body, "2", "n = Identity(i2)", "more = Less(i0, n)", "size = Shape(x)")
    text = text.replace("n = Identity(i2)", "").replace("(i0, n)", "(i0, i2)").replace("(j, n)", "(j, i2)")
    text = text.replace("more = Less(i0, i2)", "more = Constant <value = bool {1}> ()")
    assert "dovetail::SegmentReduction" in run(text, [1, 4])


OTHERS = {
    "rows that are not zero for an empty bag": model().replace("{0, 0, 0}", "{0, 0, 1}"),
    "a counter that begins later": model().replace("empty, i0)", "empty, i1)"),
    "steps of two": model().replace("j = Add(i, i1)", "j = Add(i, i2)"),
    "a product": model(SUM.replace("ReduceSum", "ReduceProd")),
    "the next bag's end": model()
    .replace("b = Slice(o, v1, v2)", "v3 = Add(v2, c1) b = Slice(o, v2, v3)")
    .replace("n = Size(given)", "g = Size(given) n = Sub(g, i1)"),
    "the last of several offsets more": model(MEAN, bags="g = Size(given) n = Sub(g, i1)"),
    "a list that is read twice": model()
    .replace("y = Concat", "z = ConcatFromSequence <axis = 0> (list) u = Concat")
    .replace("(list)\n    }", "(list) y = Add(z, u)\n    }"),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_loops_stay(text):
    assert "dovetail::CollectingLoop" in run(text, [0, 2, 2, 7])
