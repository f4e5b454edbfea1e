"""Plans for several shapes share the memory of requests, and the choices of kernels."""

import gc
import weakref

import numpy as np
import pytest

import dovetail
from dovetail.device import BYXF, Accepted, Arenas, DType, Refusal, TensorType, TypedNode
from dovetail.graph import Eltwise, GraphBuilder, Node
from dovetail.op import FLOATS, Operator
from dovetail_cpu_onednn.binding import Arg, Onednn
from dovetail_cpu_onednn.choices import Choices
from dovetail_cpu_onednn.descriptors import describe, plain
from dovetail_cpu_onednn.elementwise import ElementwiseKernel
from dovetail_cpu_onednn.kernels._conv import _TAKEN
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan import bounds
from dovetail_cpu_onednn.nan.bounds import _largest_constant
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.clip import Clip_6
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.resize import Resize

SIZE = Arenas.SMALLEST


def test_a_model_that_runs_many_shapes_keeps_results_that_a_caller_holds():
    g = GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", ("N", 1 << 10)))])
    rng = np.random.default_rng(0)
    with dovetail.Core(config=False).compile_model(model, "ONEDNN") as compiled:
        request, kept = compiled.create_infer_request(), []
        for rows in (600, 700, 650, 600, 1200, 900):
            x = rng.standard_normal((rows, 1 << 10)).astype(np.float32)
            kept.append((request.infer({"x": x}, share_outputs=True)[0], np.maximum(x, 0)))
        for found, wanted in kept:
            np.testing.assert_array_equal(found, wanted)


def node(op, x="x", dims=(2, 3), dtype=DType.FLOAT32, value=None, chain=(), name="n"):
    t = TensorType(dtype, dims, value)
    return TypedNode(Node(name, op, (x,), ("y",), chain), (t,), (t.with_shape(dims),))


def test_a_choice_holds_for_the_same_question_only():
    op, content = Relu(), np.ones((2, 3), np.float32)
    questions = [
        node(op),
        node(op, dims=(2, 4)),
        node(op, dtype=DType.FLOAT16),
        node(op, chain=(Eltwise("tanh"),)),
        node(op, x="z"),
        node(Relu()),
        node(op, value=content),
        node(op, value=content.copy()),
    ]
    for first in questions:
        for second in questions:
            choices = Choices(lambda _: (0.0, 1))
            known = [choices.get(question) for question in (first, second, second)]
            assert known[1] is known[2] is choices.take(second)
            assert (known[0] is known[1]) is (first is second)
            assert choices.get(second) is not known[1]


def test_a_choice_holds_for_one_number_of_threads_and_is_asked_for_once(monkeypatch):
    """Passes and compilation ask one after another."""
    g, asked = GraphBuilder(), []
    model = g.model([g.node(Relu(), g.input("x", "float32", (4, 1 << 20)))])
    supports = ElementwiseKernel.supports
    monkeypatch.setattr(
        ElementwiseKernel, "supports", lambda *given: (asked.append(library().planned_threads), supports(*given))[1]
    )
    for threads, expected in ((1, [1]), (2, [2])):
        asked.clear()
        with dovetail.Core(config=False).compile_model(model, "ONEDNN", {"INFERENCE_NUM_THREADS": threads}) as compiled:
            compiled.report()
        assert asked == expected


def test_a_choice_keeps_no_constant_alive():
    choices, content = Choices(lambda _: (0.0, 1)), np.ones((2, 3), np.float32)
    gone = weakref.ref(content)
    known = choices.get(node(Relu(), value=content))
    del content
    gc.collect()
    assert gone() is None
    assert choices.get(node(Relu(), value=np.ones((2, 3), np.float32))) is not known


class NoReference(Operator):
    domain = "test.shapes"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def infer(self, x):
        return x


@pytest.mark.parametrize(
    "question",
    [
        node(Relu()),
        node(Relu(), dims=(0, 3)),
        node(Relu(), dims=("N", 3)),
        node(Relu(), chain=(Eltwise("tanh"),)),
        node(NoReference()),
        node(Identity(), dtype=DType.STRING),
    ],
    ids=["plain", "empty", "open", "chain", "no reference", "strings"],
)
def test_what_is_accepted_is_supported(bench, question):
    accepted, supported = bench.device.accepts(question), bench.device.supports(question)
    assert isinstance(accepted, Accepted) is isinstance(supported, Accepted)
    assert isinstance(supported, Accepted) or accepted == supported
    assert isinstance(supported, Accepted | Refusal)


def test_onednn_is_not_asked_what_it_need_not_answer(bench, monkeypatch):
    monkeypatch.setattr(Onednn, "describe", lambda *args, **options: pytest.fail("asked"))
    g = GraphBuilder()
    y = g.node(Conv(), g.input("x", "float32", (1, 5, 11, 3)), g.constant(np.ones((7, 5, 3, 3), np.float32)))
    graph = bench.typed(g.graph([y]))
    assert isinstance(bench.device.accepts(TypedNode.of(graph.nodes[0], graph)), Accepted)


def test_onednn_is_asked_once_about_each_convolution(monkeypatch):
    asked, chosen = [], Onednn._chosen
    monkeypatch.setattr(Onednn, "_chosen", lambda self, name, *given: asked.append(name) or chosen(self, name, *given))
    rng, g = np.random.default_rng(4), GraphBuilder()
    y, weights = g.input("x", "float32", ("N", 16, 19, 23)), []
    for channels, before in ((32, 16), (48, 32), (64, 48)):
        weights.append(rng.standard_normal((channels, before, 3, 3)).astype(np.float32) / 10)
        y = g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), y, g.constant(weights[-1])))
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN") as compiled:
        compiled({"x": np.zeros((1, 16, 19, 23), np.float32)})
        asked.clear()
        x = rng.standard_normal((3, 16, 19, 23)).astype(np.float32)
        found = compiled({"x": x})[0]
    # Where the CPU does not take blocks of 16, each convolution is asked about these, too.
    most = 1 if any(layout.block == 16 for layout in _TAKEN) else 3
    assert 3 <= sum("convolution" in name for name in asked) <= 3 * most
    want = x.astype(np.float64)
    for w in weights:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(want, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        want = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64), optimize=True), 0)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_the_largest_weight_is_that_of_the_array_asked_about():
    for scale in (1.0, 3.0, 2.0):  # in memory, and under ids, that may be those of the one before
        weights = np.full((5, 7), -scale, np.float32)
        assert _largest_constant(weights) == _largest_constant(weights) == scale
        del weights


def test_shapes_share_weights_into_which_a_normalization_was_folded():
    rng, g = np.random.default_rng(3), GraphBuilder()
    w = rng.standard_normal((48, 48, 1, 1)).astype(np.float32)
    scale, shift, mean, variance = (np.abs(rng.standard_normal(48)).astype(np.float32) + 0.5 for _ in range(4))
    y = g.node(Conv(), g.input("x", "float32", ("N", 48, 2, 3)), g.constant(w), name="c")
    statistics = [g.constant(a, name=n) for a, n in ((scale, "s"), (shift, "b"), (mean, "m"), (variance, "v"))]
    model = g.model([g.node(BatchNormalization(), y, *statistics)])
    with dovetail.Core(config=False).compile_model(model, "ONEDNN") as compiled:
        found = []
        for rows in (3, 5):
            x = rng.standard_normal((rows, 48, 2, 3)).astype(np.float32)
            product = np.einsum("oi,nihw->nohw", w[..., 0, 0].astype(np.float64), x)
            factor, offset = (a[:, None, None] for a in (scale / np.sqrt(variance + 1e-5), shift))
            np.testing.assert_allclose(
                compiled({"x": x})[0], (product - mean[:, None, None]) * factor + offset, rtol=1e-4, atol=1e-3
            )
            (step,) = compiled.plan(((rows, 48, 2, 3),)).steps
            found.append([one.constants[Arg.WEIGHTS] for one in step.executable.prepared["c"]])
        first, second = found
        assert first
        assert all(a is b for a, b in zip(first, second, strict=True))


def test_a_value_has_one_memory_object(monkeypatch):
    """Of the node that writes it and those that read it in the same layout; so have values that share their place."""
    made, memory, dims = [], Onednn.memory, (3, 16, 4, 4)

    def noted(self, desc, address, *offset):
        made.append(desc)
        return memory(self, desc, address)

    g, w = GraphBuilder(), np.ones((16, 16, 1, 1), np.float32)
    x = g.input("x", "float32", ("N", *dims[1:]))
    for _ in range(3):
        x = g.node(Relu(), g.node(Conv(), x, g.constant(w)))
    compiled = dovetail.Core(config=False).compile_model(g.model([x]), "ONEDNN")
    for rows in (2, 3):
        compiled({"x": np.ones((rows, *dims[1:]), np.float32)})
    (step,) = compiled.plan((dims,)).steps
    monkeypatch.setattr(Onednn, "memory", noted)
    step.executable.create_request()
    read = written = 0
    for stages in step.executable.prepared.values():
        for argument in (a for one in stages for a in one.stage.arguments if a.desc.dims == dims):
            written += argument.place == "output"
            read += argument.place == "input"
    assert read == written
    assert 0 < sum(getattr(desc, "dims", ()) == dims for desc in made) < written, "two places serve all but input and output"


def test_primitives_are_made_with_the_plan(monkeypatch):
    """By its second thread, those of kernels that run in Python too."""
    g = GraphBuilder()
    x = g.input("x", "float32", ("N", 37))
    compiled = dovetail.Core(config=False).compile_model(g.model([*g.node(DynamicQuantizeLinear(), x, outputs=3)]), "ONEDNN")
    (step,) = compiled.plan(((41, 37),)).steps
    made, primitive = [], Onednn.primitive
    monkeypatch.setattr(Onednn, "primitive", lambda self, desc: made.append(desc.primitive) or primitive(self, desc))
    step.executable.create_request()
    assert made
    assert None not in made


def test_nodes_that_quantize_share_their_numbers_and_streams(monkeypatch):
    """Each of them has its scale and zero point there, just before its primitive reads them."""
    g, count = GraphBuilder(), 3
    inputs = [g.input(f"x{i}", "float32", ("N", 37)) for i in range(count)]
    outputs = [g.node(DynamicQuantizeLinear(), x, outputs=3) for x in inputs]
    compiled = dovetail.Core(config=False).compile_model(g.model([name for names in outputs for name in names]), "ONEDNN")
    rng = np.random.default_rng(23)
    given = [(10.0**i * rng.standard_normal((5, 37)) + i).astype(np.float32) for i in range(count)]
    found = [*compiled(given).values()]
    for i, x in enumerate(given):
        for got, want in zip(found[3 * i : 3 * i + 3], DynamicQuantizeLinear().reference(x), strict=True):
            np.testing.assert_array_equal(got, want)
    (step,) = compiled.plan(((5, 37),) * count).steps
    made, memory, stream = [], Onednn.memory, Onednn.stream
    monkeypatch.setattr(Onednn, "memory", lambda self, *given: made.append("memory") or memory(self, *given))
    monkeypatch.setattr(Onednn, "stream", lambda self: made.append("stream") or stream(self))
    step.executable.create_request()
    assert made.count("stream") == 1
    assert made.count("memory") == 2 + 2 * count  # two numbers, and the input and result of each


def test_short_calls_keep_the_lock_of_python():
    """Another thread would take it, and give it back after its next call."""
    functions = library()._f
    slow = {name for name, f in functions.items() if type(f) is library()._cdll._FuncPtr}
    assert slow == {n for n in functions if n.endswith("primitive_desc_create")} | {"primitive_create", "stream_wait"}


def test_a_reorder_is_chosen_once():
    src, dst = plain((3, 16, 4, 7)), describe(TensorType(DType.FLOAT32, (3, 16, 4, 7)).with_layout(BYXF))
    assert library().describe_reorder(src, dst) is library().describe_reorder(src, dst)


def test_weights_behind_the_last_clip_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched, largest = [], bounds._largest_constant
    monkeypatch.setattr(bounds, "_largest_constant", lambda data: searched.append(data.shape) or largest(data))
    rng, g = np.random.default_rng(0), GraphBuilder()
    value = g.input("x", "float32", (3, 4))
    for index, size in enumerate((5, 6, 7)):
        weights = rng.standard_normal((size - 1, size)).astype(np.float32)
        value = g.node(MatMul(), value, g.constant(weights))
        value = g.node(Clip_6(min=-1.0, max=1.0), value) if index == 1 else value
    x = rng.standard_normal((3, 4)).astype(np.float32)
    with dovetail.Core(config=False).compile_model(g.model([value]), "ONEDNN") as compiled:
        found = compiled(x)[0]
    assert found.shape == (3, 7)
    assert searched == [(4, 5), (5, 6)]


def test_a_reference_does_not_take_the_layouts_of_the_kernel_before_it():
    """Half of an odd length is rounded: `half_pixel_symmetric` asks for other places then, and oneDNN's resampling is refused."""
    rng, g = np.random.default_rng(0), GraphBuilder()
    weights = [rng.standard_normal((16, 16, 3)).astype(np.float32) for _ in range(2)]
    x = g.node(Conv(pads=(1, 1)), g.input("x", "float32", ("n", 16, "l")), g.constant(weights[0]))
    resize = Resize(mode="linear", coordinate_transformation_mode="half_pixel_symmetric")
    x = g.node(resize, x, "", g.constant(np.float32([1, 1, 0.5])))
    model = g.model([g.node(Conv(pads=(1, 1)), x, g.constant(weights[1]))])
    compiled, other = (dovetail.Core().compile_model(model, device) for device in ("ONEDNN", "NUMPY"))
    for batch, length in ((2, 8), (4, 22), (4, 23), (3, 5)):
        feeds = {"x": rng.standard_normal((batch, 16, length)).astype(np.float32)}
        ((got,), (expected,)) = compiled(feeds).values(), other(feeds).values()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
