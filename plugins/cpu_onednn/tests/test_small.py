"""Elementwise nodes of few elements run by NumPy, with the results that their formulas give."""

from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import PLAIN, Accepted, Binary, Eltwise, Layout, Node, PostOp, Sum, TensorType, TypedNode
from dovetail.evaluate.post_ops import apply_post_op
from dovetail.op import FLOATS, GraphBuilder, Operator
from dovetail_cpu_onednn.reorder import pack, unpacked
from dovetail_cpu_onednn.small import MOST, SmallKernel
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(0)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40, -1e-40, 0.5, 1.5, -2.5]
ELTWISE = [
    *map(Eltwise, ("abs", "exp", "relu", "sqrt", "square", "tanh")),
    *(Eltwise("relu", alpha) for alpha in (0.01, 1.0)),
    Eltwise("clip", -0.75, 1.25),
    Eltwise("linear", -1.5, 0.25),
]
BINARY = [*(Binary(name, "o") for name in ("add", "sub", "rsub", "mul", "div", "rdiv", "max", "min")), Sum("o")]


class Steps(Operator):
    """An operator that is these post-ops over X."""

    domain = "com.test"
    inputs, outputs, types = ("X: T", "O: T"), ("Y: T",), {"T": FLOATS}

    chain: ClassVar[tuple[PostOp, ...]] = ()

    def post_ops(self, types: Any, names: Any, chained: int) -> Any:
        return tuple(p if isinstance(p, Eltwise) else replace(p, operand=names[1]) for p in self.chain) if chained == 0 else ()


def steps(*chain: PostOp) -> Operator:
    return type("Chosen", (Steps,), {"chain": chain, "__annotations__": {}})()


def numbers(*shape: int) -> NDArray[Any]:
    x = np.asarray(2 * RNG.standard_normal(shape), np.float32)
    x.reshape(-1)[: len(SPECIAL)] = SPECIAL[: x.size]
    return x


def typed(op: Operator, x: NDArray[Any], o: NDArray[Any], layout: Layout, post_ops: tuple[PostOp, ...] = ()) -> TypedNode:
    types = [TensorType.of(array).with_layout(layout if array.shape == x.shape else PLAIN) for array in (x, o)]
    node = Node("n", op, ("x", "o"), ("y",), post_ops)
    return TypedNode(node, tuple(types), (types[0],), tuple(types[1] for p in post_ops if not isinstance(p, Eltwise)))


def run(node: TypedNode, x: NDArray[Any], o: NDArray[Any], *, in_place: bool) -> NDArray[Any]:
    """The result, by calls that are bound to memory full of NaN."""
    types = dict(zip(("x", "o", "y"), (*node.inputs, *node.outputs), strict=True))
    memory = {name: np.full(t.memory_dims, np.nan, np.float32) for name, t in types.items() if t is not None}
    if in_place:
        memory["y"] = memory["x"]
    calls = [*SmallKernel().bind(node, memory.__getitem__)]
    for _ in range(2):
        for name, array in (("x", x), ("o", o)):
            tensor = types[name]
            assert tensor is not None
            pack(array, memory[name], tensor)
        with np.errstate(all="ignore"):
            assert not any(call() for call in calls)
    if block := node.outputs[0].layout.block:
        assert not memory["y"][:, -1, ..., x.shape[1] % block or block :].any()
    return unpacked(memory["y"], node.outputs[0])


def wanted(steps: tuple[PostOp, ...], x: NDArray[Any], o: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        for step in steps:
            x = apply_post_op(step, x, None if isinstance(step, Eltwise) else o)
    return x


def close(found: NDArray[Any], truth: NDArray[Any]) -> None:
    np.testing.assert_allclose(found, truth, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0, 4), (2, 16, 3, 3)])
def test_each_step(shape: tuple[int, ...], in_place: bool) -> None:
    for step in (*ELTWISE, *BINARY):
        for dims in {shape, shape[-1:], ()}:
            x, o = numbers(*shape), numbers(*dims)
            for chain in ((step, Eltwise("relu")), (Eltwise("relu"), step)):
                node = typed(steps(*chain), x, o, PLAIN)
                assert isinstance(SmallKernel().supports(node), Accepted), chain
                close(run(node, x, o, in_place=in_place), wanted(chain, x, o))


def test_two_steps_of_the_operator_or_of_the_node() -> None:
    x, o, accepted = numbers(3, 7), numbers(3, 7), 0
    for first, second in product((*ELTWISE, *BINARY), repeat=2):
        for op, post_ops in ((steps(first, second), ()), (steps(first), (second,))):
            node = typed(op, x, o, PLAIN, post_ops)
            if isinstance(SmallKernel().supports(node), Accepted):
                accepted += 1
                close(run(node, x, o, in_place=True), wanted((first, second), x, o))
    assert accepted > 100


@pytest.mark.parametrize("shape", [(2, 16, 3, 3), (2, 20, 3, 2), (1, 5, 1, 1)])
@pytest.mark.parametrize("layout", [Layout("nChw16c"), Layout("nChw8c"), Layout("BYXF")])
def test_other_layouts(shape: tuple[int, ...], layout: Layout) -> None:
    """Channels past the last stay zeros, which primitives rely on."""
    for step in (Eltwise("exp"), Eltwise("relu", 0.5), Eltwise("linear", 2.0, 1.0), Binary("div", "o"), Binary("add", "o")):
        for dims in (shape, ()):
            x, o = numbers(*shape), numbers(*dims)
            node = typed(steps(step), x, o, layout)
            (config,) = SmallKernel().configurations(node)
            assert config.fits(node)
            close(run(node, x, o, in_place=True), wanted((step,), x, o))


@pytest.mark.parametrize(
    ("chain", "elements"),
    [
        ((Eltwise("relu"),), MOST + 1),
        ((Binary("mul", "o"),), 3),
        ((Eltwise("relu"), *[Binary("add", "o")] * 4), 3),
        ((Eltwise("logistic"),), 3),
        ((Eltwise("relu", -0.5),), 3),
        ((Eltwise("relu", 1.5),), 3),
        ((Eltwise("relu", scale=2.0),), 3),
        ((Eltwise("relu"), Sum("o", 2.0)), 3),
    ],
)
def test_what_is_left_to_primitives(chain: tuple[PostOp, ...], elements: int) -> None:
    x = numbers(elements)
    assert not isinstance(SmallKernel().supports(typed(steps(*chain), x, x, PLAIN)), Accepted)


def test_a_model_of_few_and_of_many_elements() -> None:
    """With values that several nodes read; a plan of few elements is followed by one of many."""
    g = GraphBuilder()
    x = g.input("x", "float32", ["N", 4])
    y = g.node(LeakyRelu(alpha=0.25), x)
    z = g.node(Exp(), y)
    model = g.model([g.node(Add(), g.node(Relu(), y), z), z, y])
    with dovetail.Core(config=False) as core, core.compile_model(model, "ONEDNN") as compiled:
        for rows, is_small in ((5, True), (MOST, False), (6, True), (MOST + 1, False)):
            data = numbers(rows, 4)
            with np.errstate(all="ignore"):
                leaky = np.where(data > 0, data, np.float32(0.25) * data)
                third = np.exp(leaky)
                results = np.maximum(leaky, 0) + third, third, leaky
            for found, truth in zip(compiled([data]).values(), results, strict=True):
                np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)
            assert ({n.kernel for n in compiled.report().nodes} == {"ufuncs"}) is is_small
