"""Sequences of loops as tensors: the same results and errors as with sequences and as onnxruntime's, and bodies without them."""

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import dovetail

X = np.random.default_rng(3).standard_normal((5, 2, 3)).astype(np.float32)
HEAD = '<ir_version: 8, opset_import: ["": 17]> graph (float[n,2,3] x, int64 count) => (float y'


def model(nodes, more="", append="s2 = SequenceInsert(s, t)", first="SequenceEmpty()", join="<axis = 1, new_axis = 1>"):
    """A loop that appends t to a sequence in each iteration, which is joined; `more` are further outputs."""
    return f"""{HEAD}{more}) <int64 one = {{1}}, int64[3] ones = {{1, 1, 1}}> {{
        first = {first}
        v, all = Loop <body = inner
            (int64 i, bool going, float v, seq(float) s) => (bool k, float w, seq(float) s2) {{
            k = Identity(going) {nodes} {append} }}> (count, , start, first)
        y = ConcatFromSequence {join} (all)
    }}"""


def compiled(text):
    text = text.replace("first =", "zero = Constant <value_int = 0> () start = Gather <axis = 0> (x, zero) first =", 1)
    made = parser.parse_model(text).SerializeToString()
    core = dovetail.Core()
    return made, core.compile_model(core.read_model(made, format="onnx"), "NUMPY")


STEP = "w = Tanh(v) t = Mul(w, w)"
SLICED = "r = SequenceAt(rows, i) w = Add(v, r) t = Mul(w, r)"
ROWS = "first = SequenceEmpty() rows = SplitToSequence <axis = 0, keepdims = 0> (x, one)"

STACKED = {
    "along axis 1": model(STEP),
    "along axis 0": model(STEP, join="<axis = 0, new_axis = 1>"),
    "along the last axis": model(STEP, join="<axis = -1, new_axis = 1>"),
    "carried and appended": model("w = Tanh(v) t = Identity(w)", append="s2 = SequenceInsert(s, w)"),
    "items before": model(STEP, first="SequenceConstruct(start, start)"),
    "slices of length 1": model(SLICED).replace("first = SequenceEmpty()", ROWS),
    "slices without a length": model(SLICED).replace("first = SequenceEmpty()", ROWS.replace("(x, one)", "(x)")),
    "slices in an inner graph": model(
        """c = Less(i, one) r = If (c) <then_branch = a () => (float[a, b] p) { p = SequenceAt(rows, i) },
        else_branch = b () => (float[a, b] q) { q = Neg(v) }> w = Add(v, r) t = Mul(w, r)"""
    ).replace("first = SequenceEmpty()", ROWS),
}
COLLECTED = {
    "joined along an axis of its own": model(STEP, join="<axis = 0>"),
    "after others": model(STEP, join="<axis = 0>", first="SequenceConstruct(start, start)"),
    "read after the loop": model(STEP, more=", int64 z").replace("y = Concat", "z = SequenceLength(all) y = Concat"),
    "of other shapes": model("""w = Tanh(v) l = Constant <value_int = 1> () l1 = Add(i, l) a = Constant <value_ints = [0]> ()
        e = Unsqueeze(l1, a) t = Slice(w, a, e, a)""", join="<axis = 0>"),
}  # fmt: skip
KEPT = {
    "put in front": model(STEP, append="front = Constant <value_int = 0> () s2 = SequenceInsert(s, t, front)"),
    "appended twice": model(STEP, append="s1 = SequenceInsert(s, t) s2 = SequenceInsert(s1, w)"),
    "its length read": model("w = Tanh(v) l = SequenceLength(s) f = Cast <to = 1> (l) t = Mul(w, f)"),
}


@pytest.mark.parametrize("text", [*STACKED.values(), *COLLECTED.values(), *KEPT.values()], ids=[*STACKED, *COLLECTED, *KEPT])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_are_those_of_onnxruntime(text, count):
    made, found = compiled(text)
    feeds = {"x": X, "count": np.array(count)}
    with found:
        results = found(feeds)
        ops = {node.op for node in found.report().nodes}
    for result, expected in zip(
        [results[i] for i in range(len(results))], onnxruntime.InferenceSession(made).run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        assert result.shape == expected.shape
    assert ("SequenceInsert" not in ops) is (text not in KEPT.values())
    assert ("dovetail::CollectingLoop" in ops) is (text in COLLECTED.values())
    if text in STACKED.values():
        assert not ops & {"SequenceAt", "ConcatFromSequence"}


@pytest.mark.parametrize("name", ["along axis 1", "items before"])
def test_without_iterations(name):
    """An empty sequence is an error, as in onnxruntime; items that were there before are joined."""
    made, found = compiled(STACKED[name])
    feeds = {"x": X, "count": np.array(0)}
    session = onnxruntime.InferenceSession(made)
    with found:
        if name == "items before":
            np.testing.assert_array_equal(found(feeds)[0], session.run(None, feeds)[0])
        else:
            with pytest.raises(dovetail.DovetailError, match=r"ConcatFromSequence.*the sequence is empty"):
                found(feeds)
            with pytest.raises(Exception, match="ConcatFromSequence"):
                session.run(None, feeds)


def test_items_of_another_shape_are_an_error():
    text = model(STEP, first="SequenceConstruct(x)")
    with compiled(text)[1] as found, pytest.raises(dovetail.DovetailError, match="one type and shape"):
        found({"x": X, "count": np.array(2)})


def test_items_of_another_type_are_an_error():
    text = model(STEP, first="SequenceConstruct(ones)", join="<axis = 0>")
    with compiled(text)[1] as found, pytest.raises(dovetail.DovetailError, match="gives float32, the sequence has int64"):
        found({"x": X, "count": np.array(2)})


def test_slices_of_other_lengths_are_kept():
    """As onnxruntime and the exporter of PyTorch have it: keepdims counts for a single length of 1 only."""
    text = model("r = SequenceAt(rows, i) w = Add(v, v) t = Identity(r)").replace(
        "first = SequenceEmpty()", ROWS.replace("one)", "ones)").replace("(x, ones)", "(head, ones)")
    )
    text = text.replace("rows =", "three = Constant <value_ints = [3]> () from = Constant <value_ints = [0]> () "
                        "head = Slice(x, from, three) rows =")  # fmt: skip
    with compiled(text)[1] as found:
        y = found({"x": X, "count": np.array(3)})[0]
    np.testing.assert_array_equal(y, np.stack([X[i : i + 1] for i in range(3)], 1))
