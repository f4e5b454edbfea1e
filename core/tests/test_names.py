"""The stem of an operator: its file name in every folder."""

import pytest

from dovetail.graph import GraphBuilder
from dovetail.names import free_name, stem_of, unique_name
from dovetail_ops_onnx.relu import Relu


@pytest.mark.parametrize(
    ("op_type", "stem"),
    [
        ("Abs", "abs"),
        ("And", "and_"),
        ("ArgMax", "arg_max"),
        ("BatchNormalization", "batch_normalization"),
        ("Col2Im", "col2_im"),
        ("ConvTranspose", "conv_transpose"),
        ("DFT", "dft"),
        ("DepthToSpace", "depth_to_space"),
        ("GRU", "gru"),
        ("GatherND", "gather_nd"),
        ("GreaterOrEqual", "greater_or_equal"),
        ("HSwish", "h_swish"),
        ("If", "if_"),
        ("IsInf", "is_inf"),
        ("IsNaN", "is_nan"),
        ("LRN", "lrn"),
        ("LSTM", "lstm"),
        ("MatMul", "mat_mul"),
        ("Not", "not_"),
        ("OneHot", "one_hot"),
        ("Or", "or_"),
        ("PRelu", "p_relu"),
        ("QLinearConv", "q_linear_conv"),
        ("RMSNormalization", "rms_normalization"),
        ("ReduceL1", "reduce_l1"),
        ("ReduceLogSumExp", "reduce_log_sum_exp"),
        ("STFT", "stft"),
        ("TopK", "top_k"),
        ("Xor", "xor"),
        ("conv", "conv"),
    ],
)
def test_stem_of(op_type: str, stem: str) -> None:
    assert stem_of(op_type) == stem


def test_a_stem_is_an_identifier_for_every_onnx_operator() -> None:
    onnx = pytest.importorskip("onnx")
    op_types = {schema.name for schema in onnx.defs.get_all_schemas()}
    stems = {stem_of(op_type) for op_type in op_types}
    assert all(stem.isidentifier() for stem in stems)
    assert len(stems) == len(op_types)


def test_unique_names_are_numbered_and_taken() -> None:
    taken, counts = {"a", "a_1"}, dict[str, int]()
    assert [unique_name(base, taken, counts) for base in ("a", "a", "b", "b")] == ["a_2", "a_3", "b", "b_1"]
    assert counts == {"a": 3, "b": 1}
    assert [unique_name("a", taken) for _ in range(2)] == ["a_4", "a_5"]
    assert len(taken) == 8


def test_a_free_name_is_the_first_that_is_not_taken() -> None:
    assert free_name("a", lambda name: False) == "a"
    assert free_name("a", {"a", "a_1", "a_3"}.__contains__) == "a_2"
    counts = {"a": 6}
    assert free_name("a", {"a"}.__contains__, counts) == "a_7"
    assert counts == {"a": 7}


def test_a_graph_gives_names_that_neither_its_values_nor_its_nodes_have() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    g.constant([1.0], "float32", name="c")
    graph = g.graph([g.node(Relu(), x, name="r", outputs=["y"])])
    untyped = graph.replace(types={})
    for one in (graph, untyped):
        assert [one.free_name(name) for name in ("x", "c", "r", "y", "z")] == ["x_1", "c_1", "r_1", "y_1", "z"]
