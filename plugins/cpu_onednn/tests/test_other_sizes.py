"""Graphs of the same nodes in other sizes: kernels are not chosen again, unless they do not take the sizes."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
import dovetail_cpu_onednn.device as device_module
import dovetail_cpu_onednn.executable as executable_module
from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail.op import FLOATS, PLAIN, DType, HostConfig, HostKernel, Operator, PortConfig
from dovetail.testing.random_graphs import evaluate
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.elementwise import ElementwiseKernel
from dovetail_cpu_onednn.executable import OnednnExecutable
from dovetail_cpu_onednn.handles import is_reference
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel, Stage
from dovetail_cpu_onednn.kernels._ufunc import ArithmeticKernel
from dovetail_cpu_onednn.making import Helper
from dovetail_cpu_onednn.placement import Placement
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.where import Where

RNG = np.random.default_rng(0)
SIZES = ((2, 8, 12, 9), (5, 8, 6, 22), (4, 8, 17, 11))


def numbers(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def model() -> dovetail.Model:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 8, "H", "W"])
    y = g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(numbers(8, 8, 3, 3))))
    z = g.node(Add(), g.node(Conv(), y, g.constant(numbers(8, 8, 1, 1))), y)
    return g.model([g.node(Mul(), z, g.node(GlobalAveragePool(), z))])


def agrees(compiled: dovetail.CompiledModel, model: dovetail.Model, shape: tuple[int, ...]) -> bool:
    feeds: Mapping[str, NDArray[Any]] = {"x": numbers(*shape)}
    (found,), (wanted,) = compiled(feeds).values(), evaluate(model, feeds)
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes for which a kernel is chosen."""
    asked: list[str] = []
    choose = device_module.choose

    def counting(kernels: Any, node: Any) -> Any:
        asked.append(node.name)
        return choose(kernels, node)

    monkeypatch.setattr(device_module, "choose", counting)
    return asked


def test_kernels_are_not_chosen_again(model: dovetail.Model, choices: list[str]) -> None:
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    assert agrees(compiled, model, SIZES[0])
    labels = [(node.name, node.post_ops, node.refusals) for node in compiled.report().nodes]
    assert choices
    choices.clear()
    assert all(agrees(compiled, model, shape) for shape in SIZES[1:])
    assert choices == []
    assert [(node.name, node.post_ops, node.refusals) for node in compiled.report().nodes] == labels
    assert any(refusals for _, _, refusals in labels), "a kernel that refused may take these sizes, and is asked"


def test_kernels_are_not_chosen_again_beside_reorders_that_are_views(choices: list[str]) -> None:
    g = dovetail.GraphBuilder()
    x = g.node(Conv(pads=(1, 1, 1, 1)), g.input("x", "float32", ["N", 8, "H", "W"]), g.constant(numbers(16, 8, 3, 3)))
    model = g.model([g.node(GlobalAveragePool(), x)])
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    assert agrees(compiled, model, SIZES[0])
    assert [node.kernel for node in compiled.report().nodes if node.op.endswith("Reorder")].count("view") > 0
    choices.clear()
    assert all(agrees(compiled, model, shape) for shape in SIZES[1:])
    assert choices == []


class Never(HostKernel):
    """Accepts no configuration."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> tuple[HostConfig, ...]:
        return ()

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        raise AssertionError("no node has this kernel")


class Doubling(Never):
    """Takes plain data, and for a reason of its own no other."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> tuple[HostConfig, ...]:
        return tuple(HostConfig((PortConfig(t, PLAIN),), (PortConfig(t, PLAIN),)) for t in (DType.FLOAT64, DType.FLOAT32))

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        np.multiply(inputs[0], 2, out=outputs[0])


class Double(Operator):
    domain, inputs, outputs, types = "com.acme", ("X: T",), ("Y: T",), {"T": FLOATS}
    kernels = (Never(), Doubling())

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        return X + X


def test_host_kernels_are_not_chosen_again(choices: list[str]) -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Double(), g.node(Relu(), g.input("x", "float32", ["N", 8, "H", "W"])))])
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    assert agrees(compiled, model, SIZES[0])
    found = [(node.kernel, node.refusals) for node in compiled.report().nodes]
    assert found[-1][0] == "doubling"
    choices.clear()
    for shape in SIZES[1:]:
        assert agrees(compiled, model, shape)
        assert compiled.report().passes[-1].name == "take_over"
        assert [(node.kernel, node.refusals) for node in compiled.report().nodes] == found
    assert choices == []


def squeezed() -> dovetail.Model:
    """Two convolutions: one of images, and `squeeze` of their means, which have one size. Weights and bias are constants."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 8, "H", "W"])
    y = g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(numbers(16, 8, 3, 3)), g.constant(numbers(16)), name="images")
    z = g.node(GlobalAveragePool(), y)
    return g.model([g.node(Conv(), z, g.constant(numbers(16, 16, 1, 1)), g.constant(numbers(16)), name="squeeze")])


def executable(compiled: dovetail.CompiledModel, *shape: int) -> OnednnExecutable:
    (step,) = compiled.plan((shape,)).steps
    assert isinstance(step.executable, OnednnExecutable)
    return step.executable


def test_nodes_of_the_same_sizes_are_taken_over_whole() -> None:
    model = squeezed()
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    assert all(agrees(compiled, model, shape) for shape in ((2, 8, 12, 9), (2, 8, 6, 22), (5, 8, 6, 22)))
    first, resized, batch = (executable(compiled, *s) for s in ((2, 8, 12, 9), (2, 8, 6, 22), (5, 8, 6, 22)))
    assert resized.prepared["squeeze"] is first.prepared["squeeze"]
    assert batch.prepared["squeeze"] is not first.prepared["squeeze"]
    assert resized.prepared["images"] is not first.prepared["images"]


def test_other_sizes_share_the_memory_objects_of_constants() -> None:
    compiled = dovetail.Core(config=False).compile_model(squeezed(), "ONEDNN")
    (first,), (other,) = (executable(compiled, *s).prepared["images"] for s in ((2, 8, 12, 9), (5, 8, 6, 22)))
    assert first is not other
    assert {Arg.WEIGHTS, Arg.BIAS} <= first.constants.keys()
    assert all(other.constants[arg] is constant for arg, constant in first.constants.items())


def test_what_is_taken_over_depends_on_threads_constants_and_shared_memory() -> None:
    compiled = dovetail.Core(config=False).compile_model(squeezed(), "ONEDNN")
    found = executable(compiled, 2, 8, 12, 9)
    (placement,) = (p for p in found.placements if p.node.name == "squeeze")
    node, threads, decided = placement.node, placement.threads, found.decided

    def placed(node: TypedNode, threads: int) -> Placement:
        return device_module._placed(node, threads, placement.nanoseconds, decided, placement)

    assert placed(node, threads) is placement
    assert placed(node, threads + 1) is not placement
    seen = found.seen["squeeze"]
    assert device_module._seen(replace(seen.given), seen, None) is seen
    x, weights, *rest = seen.given.inputs
    assert weights is not None
    assert weights.value is not None
    other = replace(weights, value=weights.value.copy())
    assert device_module._seen(replace(seen.given, inputs=(x, replace(weights), *rest)), seen, None) is seen
    assert device_module._seen(replace(seen.given, inputs=(x, other, *rest)), seen, None) is not seen
    storage = found.memory.storage
    assert found.kept(found.placements, storage).keys() == found.prepared.keys()
    assert "squeeze" not in found.kept([replace(placement)], storage)
    found.close()
    assert found.kept(found.placements, storage) == {}


def layers() -> dovetail.Model:
    """Five layers that differ in their weights only."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 8, "H", "W"])
    for number in range(5):
        y = g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(numbers(8, 8, 3, 3)), g.constant(numbers(8)), name=f"conv {number}")
        x = g.node(Add(), g.node(Sigmoid(), y, name=f"sigmoid {number}"), x, name=f"sum {number}")
    return g.model([x])


def test_nodes_that_are_alike_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers()
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    asked: list[str] = []
    again = device_module.place_again

    def counting(node: TypedNode, *rest: Any) -> Placement:
        asked.append(node.name)
        return again(node, *rest)

    monkeypatch.setattr(device_module, "place_again", counting)
    for shape in SIZES:
        assert agrees(compiled, model, shape)
    # The first one reads another layout.
    assert [name for name in asked if name.startswith("conv")] == ["conv 0", "conv 1"] * 2
    prepared = executable(compiled, *SIZES[2]).prepared
    (one,), (other,) = prepared["conv 1"], prepared["conv 2"]
    assert one.primitive is other.primitive
    assert one.constants[Arg.WEIGHTS] is not other.constants[Arg.WEIGHTS]


def test_nodes_that_are_alike_keep_their_constants_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers()
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    assert all(agrees(compiled, model, shape) for shape in SIZES[:2])
    asked: list[str] = []
    find = executable_module.found_constants

    def counting(node: TypedNode, *rest: Any) -> Any:
        asked.append(node.name)
        return find(node, *rest)

    monkeypatch.setattr(executable_module, "found_constants", counting)
    assert agrees(compiled, model, SIZES[2])
    assert [name for name in asked if name.startswith("conv")] == ["conv 0", "conv 1"]
    before, now = (executable(compiled, *shape).prepared for shape in SIZES[1:])
    for name, stages in before.items():
        for stage, again in zip(stages, now[name], strict=True):
            assert stage.constants == again.constants
    storage = [executable(compiled, *shape).memory.storage for shape in SIZES]
    assert storage[0] is storage[1] is storage[2]


def test_other_sizes_that_let_values_share_memory_in_another_way() -> None:
    # The sum may be written over the first operand where that is as large: not where it is broadcast.
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ["N", 3]), g.input("y", "float32", ["M", 3])
    model = g.model([g.node(Add(), g.node(Sigmoid(), x), g.node(Sigmoid(), y))])
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    for shapes in ((2, 2), (3, 3), (1, 3), (3, 1), (4, 4), (1, 2)):
        feeds: Mapping[str, NDArray[Any]] = {name: numbers(n, 3) for name, n in zip("xy", shapes, strict=True)}
        (found,), (wanted,) = compiled(feeds).values(), evaluate(model, feeds)
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_nodes_are_alike_by_attributes_post_ops_and_small_constants() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 8, "H", "W"])
    weights = [g.constant(numbers(8, 8, 3, 3)) for _ in range(4)]
    y = g.node(Conv(pads=(1, 1, 1, 1)), x, weights[0], name="one")
    y = g.node(Conv(pads=(1, 1, 1, 1)), y, weights[1], name="another")
    y = g.node(Conv(pads=(2, 2, 2, 2), dilations=(2, 2)), y, weights[2], name="dilated")
    y = g.node(
        Clip(),
        g.node(Conv(pads=(1, 1, 1, 1)), y, weights[3], name="clipped"),
        g.constant(np.float32(0)),
        g.constant(np.float32(6)),
    )
    found = executable(dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN"), *SIZES[0]).kinds
    assert found["one"] == found["another"] != found["dilated"]
    assert "clipped" not in found, "the content of its weights decides"


def test_a_sum_is_not_taken_over_where_it_may_no_longer_write_over_its_operand() -> None:
    g = dovetail.GraphBuilder()
    x = g.node(Conv(), g.input("x", "float32", ["N", 8, "H", "W"]), g.constant(numbers(8, 8, 1, 1)))
    y = g.node(Add(), g.node(Conv(), g.node(Relu(), x), g.constant(numbers(8, 8, 1, 1)), name="sum"), x)
    found = executable(dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN"), 2, 8, 12, 9)
    (placement,) = (p for p in found.placements if p.node.node.operands)
    storage, (operand,), (result,) = {**found.memory.storage}, placement.node.node.operands, placement.node.node.writes
    assert placement.node.name in found.kept(found.placements, storage)
    storage[result] = result if storage[result] == storage[operand] else storage[operand]
    assert placement.node.name not in found.kept(found.placements, storage)


def test_a_kernel_that_refused_before_takes_the_sizes(model: dovetail.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    supports, accepts = ArithmeticKernel.supports, list[bool]()

    monkeypatch.setattr(ArithmeticKernel, "supports", lambda self, node: Accepted("ufunc") if accepts else supports(self, node))
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    for shape in SIZES[:2]:
        assert agrees(compiled, model, shape)
        assert "ufunc" not in {node.kernel for node in compiled.report().nodes}
    accepts.append(True)
    assert agrees(compiled, model, SIZES[2])
    assert "ufunc" in {node.kernel for node in compiled.report().nodes}


@pytest.mark.parametrize("why", ["kernel", "reference"])
def test_kernels_that_do_not_take_the_sizes(model: dovetail.Model, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """One that refuses a node is chosen anew in its layouts; one that would run it by oneDNN's reference is planned again."""
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    assert agrees(compiled, model, SIZES[0])
    with monkeypatch.context() as patch:
        if why == "kernel":
            patch.setattr(PrimitiveKernel, "takes_again", lambda self, node: False)
        else:
            patch.setattr(NodePlan, "is_reference", property(lambda self: True))
            patch.setattr(NodePlan, "name", property(lambda self: "ref:any"))
        assert agrees(compiled, model, SIZES[1])
        assert ("type_and_fold" in {one.name for one in compiled.report().passes}) is (why == "reference")
    assert agrees(compiled, model, SIZES[2])


def test_another_kernel_for_the_sizes_beside_views_and_reorders_of_passes() -> None:
    """Their layouts are those that a pass gave them, which no configuration lists. Where has another kernel for many elements."""
    g = dovetail.GraphBuilder()
    x, mask = g.input("x", "float32", ["N", "T", 32]), g.input("mask", "bool", ["N", "T", "T"])
    conv = g.node(Conv(pads=(1, 1)), g.node(Transpose(perm=(0, 2, 1)), x), g.constant(numbers(32, 32, 3)))
    rows = g.node(Relu(), g.node(Transpose(perm=(0, 2, 1)), conv))
    products = g.node(MatMul(), rows, g.node(Transpose(perm=(0, 2, 1)), x))
    model = g.model([g.node(Where(), mask, products, g.constant(np.float32(-1)))])
    compiled, kernels = dovetail.Core(config=False).compile_model(model, "ONEDNN"), []
    for size in (20, 31, 70, 83):
        feeds = {"x": numbers(2, size, 32), "mask": RNG.integers(0, 2, (2, size, size)).astype(bool)}
        (found,), (wanted,) = compiled(feeds).values(), evaluate(model, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
        kernels += [node.kernel for node in compiled.report().nodes if node.op == "Where"]
        assert (compiled.report().passes[-1].name == "take_over") is (size != 20)
    assert kernels == ["masked_copy", "masked_copy", "bit_select", "bit_select"]


def test_a_reference_is_not_kept_where_a_kernel_takes_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Sigmoid(), g.input("x", "float32", ["N", 8]))])
    supports = ElementwiseKernel.supports

    def refusing(self: ElementwiseKernel, node: TypedNode) -> Accepted | Refusal:
        return Refusal(Reason.SHAPE) if node.outputs[0].dims[0] == 2 else supports(self, node)

    monkeypatch.setattr(ElementwiseKernel, "supports", refusing)
    compiled, kernels = dovetail.Core(config=False).compile_model(model, "ONEDNN"), []
    for size in (2, 5, 7):
        assert agrees(compiled, model, (size, 8))
        kernels.append(compiled.report().nodes[0].kernel)
    assert kernels[0] == "ref"
    assert "ref" not in kernels[1:]


def helped(work: Callable[[int], object], count: int, threads: int, then: Callable[[], object] = lambda: None) -> None:
    with Helper(work, threads) as helper:
        for item in range(count):
            helper.add(item)
        then()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_every_item_is_worked_on_once(threads: int, count: int) -> None:
    done: list[int] = []
    helped(done.append, count, threads)
    assert sorted(done) == [*range(count)]
    assert done == sorted(done) or threads == 2


def test_without_a_second_thread_the_calling_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    with monkeypatch.context() as patched:  # not longer: pytest-timeout's threads start after the test
        patched.setattr(threading.Thread, "start", refused)
        try:
            raise ValueError("a program that compiles because something failed")
        except ValueError:
            helped(done.append, 100, 2)
    assert done == [*range(100)]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_ends_the_work(threads: int) -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 20:
            raise ValueError("item 20")
        done.append(item)

    with pytest.raises(ValueError, match="item 20"):
        helped(work, 100, threads)
    assert set(range(20)) <= {*done}
    assert "dovetail-onednn" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_the_calling_thread_is_raised_first(threads: int) -> None:
    def work(item: int) -> None:
        raise ValueError(f"item {item}")

    def mine() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        helped(work, 100, threads, mine)
    assert "dovetail-onednn" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("is_started", [False, True])
def test_an_interrupt_while_the_second_thread_starts(is_started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        if is_started:
            start(thread)
            started.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        helped(lambda _: None, 100, 2)
    assert not any(thread.is_alive() for thread in started)


def test_an_interrupt_at_the_end_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = Helper[int](lambda _: None, 2)
    for item in range(5):
        helper.add(item)

    thread = helper._thread
    assert thread is not None

    def interrupted() -> None:
        if threading.current_thread() is not thread:
            raise KeyboardInterrupt

    monkeypatch.setattr(helper, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        helper.__exit__(None, None, None)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("name", "is_slow"),
    [
        ("conv:any+ref:any", True),
        ("ref:any", True),
        ("simple_nchw:any", True),
        ("conv:any+jit:avx2", False),
        ("simple:any", False),
    ],
)
def test_a_deconvolution_by_a_reference_is_one(name: str, is_slow: bool) -> None:
    """oneDNN names the convolution that it runs. A plan that was taken over kept blocks of 16 with it, where 8 are fast."""
    stage = Stage(SimpleNamespace(implementation=name, is_reference=is_reference(name)), ())  # type: ignore[arg-type]
    assert NodePlan((stage,)).is_reference == NodePlan((stage, stage)).is_reference == is_slow


def test_one_node_that_needs_another_kernel_leaves_the_others(choices: list[str]) -> None:
    """Where has another kernel from 8,192 elements on; only it is chosen anew, in both directions."""
    g = dovetail.GraphBuilder()
    x, mask = g.input("x", "float32", ["N", 32]), g.input("mask", "bool", ["N", "N"])
    products = g.node(MatMul(), g.node(MatMul(), x, g.constant(numbers(32, 32))), g.node(Transpose(perm=(1, 0)), x))
    model = g.model([g.node(Where(), mask, products, g.constant(np.float32(-1)), name="where")])
    compiled, kernels = dovetail.Core(config=False).compile_model(model, "ONEDNN"), []
    for size in (20, 31, 120, 25):
        choices.clear()
        feeds = {"x": numbers(size, 32), "mask": RNG.integers(0, 2, (size, size)).astype(bool)}
        (found,), (wanted,) = compiled(feeds).values(), evaluate(model, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
        kernels.append({node.name: node.kernel for node in compiled.report().nodes}["where"])
        if size != 20:
            assert set(choices) == ({"where"} if size in (120, 25) else set())
    assert kernels[0] == kernels[1] == kernels[3] != kernels[2]
