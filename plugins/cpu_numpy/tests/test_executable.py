"""Whole graphs: shared memory never harms a value, requests are independent, a run allocates nothing, errors name the node."""

import threading
import tracemalloc

import numpy as np
import pytest

from dovetail.device import OutOfMemory
from dovetail.errors import InferError, OperatorError
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, Operator
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail_cpu_numpy.request import BUFFER
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dropout import Dropout_7
from dovetail_ops_onnx.elu import Elu
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.sum import Sum
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.where import Where

# --- random graphs of 4 x 4 matrices ------------------------------------------------------------------------------------

SIDE = 4


def split_and_swapped(g, pick, rng):
    axis = int(rng.integers(2))
    first, second = g.node(Split(axis=axis, num_outputs=2), pick(), outputs=[f"half{rng.integers(1 << 60)}" for _ in range(2)])
    return g.node(Concat(axis=axis), second, first)


def by_way_of_a_vector(g, pick, rng):
    vector = g.node(Reshape(), pick(), g.constant(np.array([SIDE * SIDE])))
    return g.node(Reshape(), g.node(Relu(), vector), g.constant(np.array([SIDE, SIDE])))


BUILDERS = [
    lambda g, pick, rng: g.node(Add(), pick(), pick()),
    lambda g, pick, rng: g.node(Sub(), pick(), pick()),
    lambda g, pick, rng: g.node(Mul(), pick(), row(g, rng)),
    lambda g, pick, rng: g.node(Sub(), row(g, rng), pick()),
    lambda g, pick, rng: g.node(Relu(), pick()),
    lambda g, pick, rng: g.node(Elu(), pick()),
    lambda g, pick, rng: g.node(Sigmoid(), pick()),
    lambda g, pick, rng: g.node(Softmax(axis=int(rng.integers(2))), pick()),
    lambda g, pick, rng: g.node(Sum(), pick(), row(g, rng), pick()),
    lambda g, pick, rng: g.node(Where(), g.constant(rng.random((SIDE, 1)) < 0.5), pick(), pick()),
    lambda g, pick, rng: g.node(MatMul(), g.node(Sigmoid(), pick()), row(g, rng, (SIDE, SIDE))),
    lambda g, pick, rng: g.node(Identity(), pick()),
    lambda g, pick, rng: g.node(Transpose(), pick()),
    split_and_swapped,
    by_way_of_a_vector,
]


def row(g, rng, shape=None):
    shapes = [(SIDE,), (SIDE, 1), (1, 1), ()]
    return g.constant(np.asarray(0.5 * rng.standard_normal(shape or shapes[rng.integers(4)]), np.float32))


def random_graph(rng):
    """Nodes that each read some of the latest values; several values are outputs, a few of them inputs or constants."""
    g = GraphBuilder()
    values = [g.input("in0", "float32", (SIDE, SIDE)), g.input("in1", "float32", (SIDE, SIDE)), row(g, rng, (SIDE, SIDE))]
    for _ in range(25):
        values.append(BUILDERS[rng.integers(len(BUILDERS))](g, lambda: str(rng.choice(values[-5:])), rng))
    outputs = [values[-1], *rng.choice(values, 3, replace=False)]
    return g.graph(list(dict.fromkeys(str(name) for name in outputs)))


def references(graph, feeds):
    """Every output from the operators' references in float64."""
    found = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in graph.constants.items()}
    found.update((name, a.astype(np.float64)) for name, a in zip(graph.inputs, feeds, strict=True))
    for node in graph.nodes:
        result = node.op.reference(*(found[name] if name else None for name in node.inputs))
        results = result if isinstance(result, tuple) else (result,)
        found.update(zip(node.outputs, results, strict=False))
    return [found[name] for name in graph.outputs]


@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(bench, seed, fusion):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    feeds = [rng.standard_normal((SIDE, SIDE)).astype(np.float32) for _ in range(2)]
    typed = bench.typed(graph)
    executable = bench.device.compile(fuse_post_ops(typed, bench.device.supports).graph if fusion else typed, {})
    for got, want in zip(bench.run_twice(executable, feeds), references(graph, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(want).max()))


def test_random_graphs_share_memory_and_fuse(bench):
    """The graphs above do exercise what they are for: memory written in place, and chains."""
    shared = chained = 0
    for seed in range(60):
        typed = bench.typed(random_graph(np.random.default_rng(seed)))
        executable = bench.device.compile(fuse_post_ops(typed, bench.device.supports).graph, {})
        nodes = {name: p for p in executable.placements for name in p.node.node.writes}
        storage = executable.memory.storage
        shared += sum(storage[name] != name and nodes[name].kernel.name not in ("view",) for name in nodes)
        chained += sum(len(r.post_ops) for r in executable.reports)
    assert shared > 100
    assert chained > 100


# --- requests -----------------------------------------------------------------------------------------------------------


def small_network(rng):
    """Convolutions by each kernel, pooling, a residual, a matrix product: 64 x 64 images, batch 2."""
    g = GraphBuilder()

    def weights(*shape):
        return g.constant((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    x = g.input("x", "float32", (2, 3, 64, 64))
    x = g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1), strides=(2, 2)), x, weights(8, 3, 3, 3), weights(8)))
    y = g.node(Conv(pads=(1, 1, 1, 1), group=8), x, weights(8, 1, 3, 3))
    x = g.node(Add(), g.node(Conv(), y, weights(8, 8, 1, 1)), x)
    x = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), x)
    x = g.node(MatMul(), g.node(Reshape(), x, g.constant(np.array([2, 2048]))), weights(2048, 10))
    return g.graph([g.node(Softmax(), x)])


def test_requests_in_threads_do_not_disturb_each_other(bench):
    rng = np.random.default_rng(1)
    executable = bench.executable(small_network(rng))
    feeds = [rng.standard_normal((2, 3, 64, 64)).astype(np.float32) for _ in range(4)]
    alone = [executable.create_request().run([x])[0].copy() for x in feeds]
    assert len({a.tobytes() for a in alone}) == len(feeds)
    wrong = []

    def work(x, want):
        request = executable.create_request()
        wrong.extend(run for run in range(50) if not np.array_equal(request.run([x])[0], want))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(feeds, alone, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_run_is_a_flat_tuple_and_allocates_no_arrays(bench):
    rng = np.random.default_rng(2)
    request = bench.executable(small_network(rng)).create_request()
    assert type(request._launches) is tuple
    x = rng.standard_normal((2, 3, 64, 64)).astype(np.float32)
    request.run([x])
    tracemalloc.start()
    try:
        request.run([x])
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        request.run([x])
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # The images between layers have 16 to 64 kB; NumPy's buffers of 1024 elements need some.
    assert peak < 12_000


def test_values_lie_aligned_in_an_arena_of_the_planned_size(bench):
    executable = bench.executable(small_network(np.random.default_rng(3)))
    assert executable.memory.peak < executable.memory.unshared
    request = executable.create_request()
    (x,), (y,) = request._inputs, request._outputs
    assert x.base is y.base
    assert x.base.nbytes <= executable.memory.peak + 64
    assert x.ctypes.data % 64 == y.ctypes.data % 64 == 0


def test_outputs_may_be_inputs_constants_and_views(bench):
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 3))
    c = g.constant(np.arange(6, dtype=np.float32).reshape(3, 2).T, name="c")
    flat_c = g.node(Reshape(), c, g.constant(np.array([6])))
    y = g.node(Relu(), x)
    flat_y = g.node(Reshape(), y, g.constant(np.array([3, 2])))
    executable = bench.executable(g.graph([x, c, flat_c, y, flat_y, x]))
    given = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    found = bench.run_twice(executable, [given])
    want = [given, [[0, 2, 4], [1, 3, 5]], [0, 2, 4, 1, 3, 5], np.maximum(given, 0), np.maximum(given, 0).reshape(3, 2), given]
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_second_output_of_a_view_is_written(bench):
    g = GraphBuilder()
    outputs = g.node(Dropout_7(), g.input("x", "float32", (3,)), outputs=["y", "mask"])
    y, mask = bench.run_twice(bench.executable(g.graph(outputs)), [np.array([1, 2, 3], np.float32)])
    assert y.tolist() == [1, 2, 3]
    assert mask.tolist() == [1, 1, 1]


def test_strings(bench):
    g = GraphBuilder()
    x = g.input("x", "string", (2,))
    joined = g.node(Concat(axis=0), x, g.constant(np.array(["c"], object)))
    (got,) = bench.run_twice(bench.executable(g.graph([g.node(Identity(), joined)])), [np.array(["a", "b"], object)])
    assert got.tolist() == ["a", "b", "c"]


# --- what goes wrong ----------------------------------------------------------------------------------------------------


class Wrong(Operator):
    """An operator whose reference does not do what it declares; `how` says in which way."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    how: str

    def reference(self, X):
        if self.how == "raises":
            raise ZeroDivisionError("by the test")
        if self.how == "refuses":
            raise OperatorError("no such element", hint="try another")
        if self.how == "memory":
            raise MemoryError
        if self.how == "writes":
            X[0] = 7
        return {"shape": X[:1], "dtype": X.astype(np.float64), "none": ()}.get(self.how, X)


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raises", InferError, "ZeroDivisionError: by the test"),
        ("refuses", InferError, "no such element\n  try another"),
        ("memory", OutOfMemory, "no memory left"),
        ("writes", InferError, "read-only"),
        ("shape", InferError, "output 0 as float32[1]; infer() declares float32[3]"),
        ("dtype", InferError, "output 0 as float64[3]; infer() declares float32[3]"),
        ("none", InferError, "gave 0 outputs"),
    ],
)
def test_errors_name_the_node(bench, how, kind, text):
    g = GraphBuilder()
    y = g.node(Relu(), g.node(Wrong(how=how), g.node(Relu(), g.input("x", "float32", (3,))), name="culprit"))
    request = bench.executable(g.graph([y])).create_request()
    with pytest.raises(kind) as caught:
        request.run([np.ones(3, np.float32)])
    assert type(caught.value) is kind
    assert "node 'culprit' (test::Wrong)" in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("wrong", [5, -6, 2**31 - 1])
def test_gather_checks_every_index_before_it_reads(bench, wrong, dtype):
    g = GraphBuilder()
    data = g.constant(np.arange(10, dtype=np.float32).reshape(5, 2))
    y = g.node(Gather(), data, g.input("i", dtype, (3,)), name="lookup")
    request = bench.executable(g.graph([y])).create_request()
    assert request.run([np.array([4, -5, -1], dtype)])[0].tolist() == [[8, 9], [0, 1], [8, 9]]
    with pytest.raises(InferError, match=rf"node 'lookup' \(Gather\): index {wrong} is outside axis 0 of size 5"):
        request.run([np.array([0, wrong, 1], dtype)])
    assert request.run([np.array([1, 1, 1], dtype)])[0].tolist() == [[2, 3]] * 3


@pytest.mark.parametrize("dims", [(0, 2, 3, 4), (1, 2, 0, 4)], ids=str)
def test_positions_of_no_tokens(bench, dims):
    g = GraphBuilder()
    caches = [g.constant(np.ones((5, 2), np.float32)) for _ in range(2)]
    y = g.node(RotaryEmbedding(), g.input("x", "float32", dims), *caches, g.input("ids", "int64", (dims[0], dims[2])))
    request = bench.executable(g.graph([y])).create_request()
    assert request.run([np.zeros(dims, np.float32), np.zeros((dims[0], dims[2]), np.int64)])[0].shape == dims


def test_positions_that_the_caches_lack(bench):
    g = GraphBuilder()
    x, caches = g.input("x", "float32", (1, 1, 2, 4)), [g.constant(np.ones((5, 2), np.float32)) for _ in range(2)]
    y = g.node(RotaryEmbedding(), x, *caches, g.input("ids", "int64", (1, 2)), name="turn")
    request = bench.executable(g.graph([y])).create_request()
    for wrong in (5, -6, -(2**31)):
        with pytest.raises(InferError, match=rf"node 'turn' \(RotaryEmbedding\): index {wrong} is outside axis 0 of size 5"):
            request.run([np.ones((1, 1, 2, 4), np.float32), np.array([[0, wrong]])])


def test_gather_from_nothing(bench):
    g = GraphBuilder()
    y = g.node(Gather(axis=1), g.input("x", "float32", (2, 0)), g.input("i", "int64", (1,)))
    request = bench.executable(g.graph([y])).create_request()
    with pytest.raises(InferError, match="axis 1 of size 0"):
        request.run([np.zeros((2, 0), np.float32), np.zeros(1, np.int64)])


def test_an_arena_that_the_host_refuses(bench):
    g = GraphBuilder()
    executable = bench.executable(g.graph([g.node(Relu(), g.input("x", "float32", (1 << 45,)))]))
    with pytest.raises(OutOfMemory, match=f"refuses {1 << 48} bytes"):
        executable.create_request()


@pytest.mark.parametrize("own_state", [True, False])
def test_a_run_has_its_own_settings_of_numpy(bench, monkeypatch, own_state):
    """In a context of its own, and where NumPy keeps them by thread."""
    if not own_state:
        monkeypatch.setattr("dovetail_cpu_numpy.request.quiet_context", lambda size: None)
    seen = []

    class Look(Operator):
        domain = "test"

        def reference(self, X):
            seen.append((np.getbufsize(), set(np.geterr().values())))
            return X / 0

    g = GraphBuilder()
    request = bench.executable(g.graph([g.node(Look(), g.input("x", "float32", (3,)))])).create_request()
    for _ in range(2):
        assert np.isinf(request.run([np.ones(3, np.float32)])[0]).all()
    assert seen == [(BUFFER, {"ignore"})] * 2


@pytest.mark.parametrize("own_state", [True, False])
def test_a_run_leaves_the_thread_as_it_was(bench, monkeypatch, own_state):
    """Error state and buffer size of NumPy, also when the run fails."""
    if not own_state:
        monkeypatch.setattr("dovetail_cpu_numpy.request.quiet_context", lambda size: None)
    g = GraphBuilder()
    executable = bench.executable(g.graph([g.node(Wrong(how="raises"), g.input("x", "float32", (3,)))]))
    size = np.setbufsize(4096)
    try:
        with np.errstate(divide="raise", over="print"):
            before = np.geterr()
            with pytest.raises(InferError):
                executable.create_request().run([np.ones(3, np.float32)])
            assert np.geterr() == before
            assert np.getbufsize() == 4096
    finally:
        np.setbufsize(size)


def test_memory_is_taken_over_by_values_of_the_same_type_only(bench):
    g = GraphBuilder()
    x = g.node(Relu(), g.input("x", "int8", (3,)))
    plain = bench.executable(g.graph([g.node(Add(), x, x, name="sum")]))
    assert plain.memory.storage["sum:0"] == "sum:0"
    same = bench.executable(g.graph([g.node(Add(), x, g.constant(np.ones(3, np.int8)), name="same")]))
    assert same.memory.storage["same:0"] == x
    other = bench.executable(g.graph([g.node(Less(), x, g.constant(np.ones(3, np.int8)), name="less")]))
    assert other.memory.storage["less:0"] == "less:0"


def test_a_scale_as_large_as_the_data_is_not_overwritten(bench):
    g = GraphBuilder()
    x = g.input("x", "float32", (5,))
    y = g.node(LayerNormalization(), x, g.node(Elu(), g.input("scale", "float32", (5,))))
    feeds = np.random.default_rng(4).standard_normal((2, 5)).astype(np.float32)
    (got,) = bench.run_twice(bench.executable(g.graph([y])), feeds)
    wide = feeds.astype(np.float64)
    normal = (wide[0] - wide[0].mean()) / np.sqrt(wide[0].var() + 1e-5)
    np.testing.assert_allclose(got, normal * np.where(wide[1] > 0, wide[1], np.expm1(wide[1])), rtol=1e-5, atol=1e-6)


def test_infinities_and_overflow_make_no_warnings(bench):
    g = GraphBuilder()
    x = g.input("x", "float32", (4,))
    y = g.node(Softmax(), g.node(Mul(), x, x))
    (got,) = bench.executable(g.graph([y])).create_request().run([np.array([1e30, -np.inf, np.nan, 0], np.float32)])
    assert np.isnan(got).all()
