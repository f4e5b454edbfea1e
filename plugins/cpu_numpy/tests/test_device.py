"""The device and its entry point: what it declares, what it accepts and refuses, which kernel it takes."""

import numpy as np
import pytest

import dovetail
import dovetail_cpu_numpy
from dovetail.device import Accepted, Reason, Refusal, TensorType, TypedNode
from dovetail.errors import CompileError, UsageError
from dovetail.graph import DType, Eltwise, GraphBuilder, Node
from dovetail.op import FLOATS, Operator
from dovetail_ops_onnx.relu import Relu


def typed(op, *types, outputs=None):
    names = tuple(f"x{i}" for i in range(len(types)))
    return TypedNode(Node("n", op, names, ("y",)), types, outputs or (types[0],))


def test_the_core_finds_and_opens_it():
    core = dovetail.Core()
    assert "NUMPY" in core.available_devices
    g = GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", (3,)), outputs=["y"])])
    with core.compile_model(model, "NUMPY") as compiled:
        assert compiled({"x": np.array([1, -2, 3], np.float32)})["y"].tolist() == [1, 0, 3]
        (node,) = compiled.report().nodes
    assert (node.device, node.kernel) == ("NUMPY", "post_ops")


def test_hooks():
    (info,) = dovetail_cpu_numpy.dovetail_device_info({})
    assert (info.name, info.type, info.kind) == ("NUMPY", "NUMPY", "CPU")
    # Stored plans are for devices of the same details: a number of CPUs here would spoil them on other machines for nothing.
    assert info.details == {"numpy": np.__version__}
    device = dovetail_cpu_numpy.dovetail_device_open(info, {})
    assert device.info is info
    with pytest.raises(UsageError, match="NUMPY has no option 'SPEED'"):
        dovetail_cpu_numpy.dovetail_device_open(info, {"SPEED": 11})


def test_unknown_option_of_compile(bench):
    with pytest.raises(UsageError, match="Known: STUB"):
        bench.device.compile(GraphBuilder().graph([]), {"SPEED": 11})


@pytest.mark.parametrize("shape", [("N", 3), (None, 3), None])
def test_open_shapes_are_refused(bench, shape):
    refusal = bench.device.supports(typed(Relu(), TensorType(DType.FLOAT32, shape)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.DYNAMIC


class Composed(Operator):
    """An operator without a reference of its own."""

    domain = "test"

    def compose(self, g, x):
        return g.node(Relu(), x)


class Conv(Operator):
    """An operator of another domain that has the name of a standard one and adds instead."""

    domain = "test"
    inputs = ("X: T", "W: T")
    types = {"T": FLOATS}

    def reference(self, X, W):
        return X + W


def test_no_reference_is_refused(bench):
    node = typed(Composed(), TensorType(DType.FLOAT32, (3,)))
    assert bench.device.supports(node) == Refusal(Reason.OPERATOR, "test::Composed has no NumPy reference")
    g = GraphBuilder()
    graph = bench.typed(g.graph([g.node(Composed(), g.input("x", "float32", (3,)), name="odd")]))
    with pytest.raises(CompileError, match=r"NUMPY refuses node 'odd' \(test::Composed\): no kernel"):
        bench.device.compile(graph, {})


def test_kernels_of_a_stem_serve_the_standard_operator_only(bench):
    x = TensorType(DType.FLOAT32, (1, 1, 2, 2))
    assert bench.device.supports(typed(Conv(), x, x)) == Accepted("ref", from_operator=True)
    a, b = np.random.default_rng(1).standard_normal((2, 1, 1, 2, 2)).astype(np.float32)
    np.testing.assert_array_equal(bench.run_one(Conv(), (a, b)), a + b)


def test_every_standard_operator_with_a_reference_is_accepted(bench):
    """On a case of each: the kernels of the list may refuse it, the reference does not."""
    from dovetail.testing.case_files import standard_cases

    first = dict(reversed(standard_cases(0)))
    assert len(first) > 150
    for name, case in first.items():
        graph = case.model().graph
        outputs = tuple(TensorType.of(a) for a in case.expected)
        node = TypedNode(graph.nodes[0], tuple(graph.type_of(n) for n in graph.nodes[0].inputs), outputs)
        assert bench.device.supports(node) or not case.op.has_reference(), name


def test_the_names_of_the_kernels_of_a_stem_differ(bench):
    for stem in bench.stems:
        names = [kernel.name for kernel in bench.kernels(stem)]
        assert names
        assert len(set(names)) == len(names)
        assert "ref" not in names


@pytest.mark.parametrize("dims", [(2, 3), (0, 3), ("N", 3)])
@pytest.mark.parametrize("chain", [(), (Eltwise("tanh"),)], ids=["alone", "chain"])
def test_what_is_accepted_is_supported(bench, dims, chain):
    t = TensorType(DType.FLOAT32, dims)
    node = TypedNode(Node("n", Relu(), ("x",), ("y",), chain), (t,), (t,))
    accepted, supported = bench.device.accepts(node), bench.device.supports(node)
    assert isinstance(accepted, Accepted) is isinstance(supported, Accepted) is (dims != ("N", 3))
