"""Memory layouts on NUMPY: any mixture of accepted layouts gives what plain memory gives, with the fewest reorders."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail.op import ANY, FYXB, NHWC, PLAIN, YXFB, HostConfig, HostKernel, Layout, Operator, PortConfig
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.where import Where

DIMS = (2, 3, 4, 5)
LAYOUTS = {"PLAIN": PLAIN, "NHWC": NHWC, "YXFB": YXFB, "FYXB": FYXB, "ANY": ANY}


def mixed(inputs: Sequence[Any]) -> Any:
    """A weighted sum; the weights of the elements depend on their place, so a wrong layout shows."""
    weights = np.arange(np.prod(DIMS), dtype=np.float32).reshape(DIMS) % 7
    return sum((i + 1) * a for i, a in enumerate(inputs)) * np.float32(0.5) + weights


class MixKernel(HostKernel):
    """Takes what the operator's attribute says: `"NHWC PLAIN > FYXB"` are the layouts of two inputs and the output."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [self._config(text, inputs, outputs) for text in op.accepts]

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        for array, port in zip((*inputs, *outputs), (*config.inputs, *config.outputs), strict=True):
            assert array.flags.c_contiguous
            if port.layout != ANY:
                assert array.shape == tuple(DIMS[d] for d in port.layout.order(4))
        if config.outputs[0].layout == ANY:  # the shape says which
            order = next(
                v.order(4) for v in LAYOUTS.values() if v != ANY and [DIMS[d] for d in v.order(4)] == [*outputs[0].shape]
            )
            layouts: list[Any] = [order] * (len(inputs) + 1)
        else:
            layouts = [port.layout.order(4) for port in (*config.inputs, *config.outputs)]
        arrays = [a.transpose(np.argsort(order)) for a, order in zip((*inputs, *outputs), layouts, strict=True)]
        arrays[-1][...] = mixed(arrays[:-1])

    def _config(self, text: str, inputs: Any, outputs: Any) -> HostConfig:
        given, _, made = text.partition(" > ")
        ports = zip(inputs, given.split(), strict=True)
        return HostConfig(
            tuple(PortConfig(t.dtype, LAYOUTS[name]) for t, name in ports), (PortConfig(outputs[0].dtype, LAYOUTS[made]),)
        )


class Mix(Operator):
    """A weighted sum of any number of inputs, whose kernel takes the layouts in `accepts`; plain by its reference without."""

    domain = "test.layouts"
    inputs = ("inputs*",)
    outputs = ("Y",)
    kernels = (MixKernel(),)
    accepts: tuple[str, ...] = ()

    def reference(self, *inputs: Any) -> Any:
        return mixed(inputs)


class Distance(Operator):
    """|x - y|, elementwise, by its reference alone."""

    domain = "test.layouts"
    inputs = ("X", "Y")
    outputs = ("Z",)
    in_place = True

    def reference(self, X: Any, Y: Any) -> Any:
        return np.abs(X - Y)


def random_accepts(choose: random.Random, reads: int) -> tuple[str, ...]:
    found = []
    for _ in range(choose.randint(1, 3)):
        if choose.random() < 0.25:
            found.append(" ".join(["ANY"] * reads) + " > ANY")
        else:
            kinds = ["PLAIN", "NHWC", "YXFB", "FYXB"]
            found.append(" ".join(choose.choice(kinds) for _ in range(reads)) + " > " + choose.choice(kinds))
    return tuple(found)


def elementwise(g: GraphBuilder, choose: random.Random, values: list[str]) -> str:
    scalar = g.constant(np.float32(choose.choice([0.5, 2, -1])).reshape(choose.choice([(), (1,), (1, 1, 1, 1)])))
    x, y = choose.choice(values), choose.choice(values)
    condition = g.constant(np.random.default_rng(3).random(DIMS) < 0.5)
    built = [
        lambda: g.node(Relu(), x),
        lambda: g.node(Sigmoid(), x),
        lambda: g.node(Add(), x, y),
        lambda: g.node(Sub(), scalar, x),
        lambda: g.node(Mul(), x, scalar),
        lambda: g.node(Mul(), x, g.constant(np.float32([[[1]], [[0.5]], [[2]]]))),  # broadcasts along channels: plain
        lambda: g.node(Max(), x, y, scalar),
        lambda: g.node(Where(), condition, x, y),
        lambda: g.node(Cast(to=dovetail.DType.FLOAT32), g.node(Cast(to=dovetail.DType.FLOAT64), x)),
        lambda: g.node(Distance(), x, y),
    ]
    return str(choose.choice(built)())


def random_model(seed: int, *, plain: bool) -> Any:
    choose = random.Random(seed)
    g = GraphBuilder()
    values = [g.input("x", "float32", DIMS), g.constant(np.random.default_rng(seed).random(DIMS, np.float32), name="c")]
    for _ in range(1 + seed % 8):
        if choose.random() < 0.5:
            reads = choose.sample(values, k=choose.randint(1, min(3, len(values))))
            accepts = random_accepts(choose, len(reads))
            values.append(g.node(Mix(accepts=() if plain else accepts), *reads))
        else:
            values.append(elementwise(g, choose, values[-4:]))
    outputs = dict.fromkeys((values[-1], choose.choice(values[2:])))
    return g.model([*outputs])


@pytest.mark.parametrize("block", range(10))
def test_any_mixture_of_layouts_gives_what_plain_memory_gives(core: dovetail.Core, block: int) -> None:
    """200 graphs, with fusion and without; about two in three have reorders."""
    reorders = 0
    for seed in range(block * 20, block * 20 + 20):
        x = np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)
        options = {"FUSION": seed % 2 == 0}
        plain = core.compile_model(random_model(seed, plain=True), "NUMPY", options)
        model = core.compile_model(random_model(seed, plain=False), "NUMPY", options)
        assert plain.report({"x": DIMS}).reorders == 0
        reorders += model.report({"x": DIMS}).reorders > 0
        expected, results = plain({"x": x}), model({"x": x})
        for index in range(len(expected)):
            np.testing.assert_array_equal(results[index], expected[index], err_msg=f"seed {seed}")
            assert results[index].flags.c_contiguous
    assert reorders > 5


def chain(core: dovetail.Core, *nodes: Any, fusion: bool = False) -> Any:
    """x through one node after another: an operator, or the layout in which Mix takes everything."""
    g = GraphBuilder()
    y = g.input("x", "float32", DIMS)
    for node in nodes:
        y = g.node(Mix(accepts=(f"{node} > {node}",)) if isinstance(node, str) else node, y)
    return core.compile_model(g.model([y]), "NUMPY", {"FUSION": fusion})


@pytest.mark.parametrize(
    ("nodes", "reorders"),
    [
        (["PLAIN", "PLAIN"], 0),
        (["ANY", Relu()], 0),
        (["NHWC"], 2),
        (["NHWC", Relu(), "NHWC"], 2),
        (["NHWC", Relu(), Sigmoid(), "ANY", "NHWC"], 2),
        (["PLAIN", "NHWC", "ANY", "NHWC", "PLAIN"], 2),
        (["NHWC", "YXFB", Relu(), "YXFB"], 3),
        (["NHWC", "PLAIN", "NHWC"], 4),
        (["FYXB", Relu(), "NHWC", Relu(), "PLAIN"], 3),
    ],
)
@pytest.mark.parametrize("fusion", [False, True])
def test_as_many_reorders_as_needed(core: dovetail.Core, nodes: list[Any], reorders: int, fusion: bool) -> None:
    model = chain(core, *nodes, fusion=fusion)
    x = np.random.default_rng(1).standard_normal(DIMS).astype(np.float32)
    wide = x.astype(np.float64)
    for node in nodes:
        if isinstance(node, str):
            wide = mixed([wide])
        else:
            wide = np.maximum(wide, 0) if isinstance(node, Relu) else 1 / (1 + np.exp(-wide))
    np.testing.assert_allclose(model({"x": x})[0], wide, rtol=1e-5)
    report = model.report()
    assert report.reorders == reorders
    moved = [n for n in report.nodes if n.op == "dovetail::Reorder"]
    assert [(n.kernel, n.provider.split()[0]) for n in moved] == [("reorder", "dovetail-cpu-numpy")] * reorders


def test_scalars_do_not_stop_a_layout_and_vectors_do(core: dovetail.Core) -> None:
    for shape, reorders in (((), 2), ((1, 1, 1), 2), ((5,), 4)):
        g = GraphBuilder()
        y = g.node(Mix(accepts=("NHWC > NHWC",)), g.input("x", "float32", DIMS))
        y = g.node(Mul(), y, g.constant(np.full(shape, 2, np.float32)))
        model = core.compile_model(g.model([g.node(Mix(accepts=("NHWC > NHWC",)), y)]), "NUMPY", {"FUSION": False})
        assert model.report().reorders == reorders, shape
        x = np.ones(DIMS, np.float32)
        np.testing.assert_array_equal(model({"x": x})[0], mixed([mixed([x]) * 2]))


def test_post_ops_broadcast_in_the_operators_dimensions(core: dovetail.Core) -> None:
    g = GraphBuilder()
    y = g.node(Mix(accepts=("NHWC > NHWC",)), g.input("x", "float32", DIMS))
    channels, like = np.float32([1, 2, 3]).reshape(3, 1, 1), np.random.default_rng(2).random(DIMS, np.float32)
    y = g.node(Add(), g.node(Mul(), y, g.constant(channels)), g.constant(like))
    model = core.compile_model(g.model([y]), "NUMPY")
    assert model.report().nodes[1].post_ops == ("mul", "add")
    assert model.report().reorders == 2
    x = np.random.default_rng(1).standard_normal(DIMS).astype(np.float32)
    wide = mixed([x.astype(np.float64)]) * channels + like
    np.testing.assert_allclose(model({"x": x})[0], wide, rtol=1e-5)


def test_a_constant_is_laid_out_when_compiled(core: dovetail.Core) -> None:
    value = np.random.default_rng(2).random(DIMS, np.float32)
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    c = g.constant(value)
    # The same constant in two layouts.
    y = g.node(Mix(accepts=("PLAIN NHWC > PLAIN",)), x, c)
    y = g.node(Mix(accepts=("PLAIN YXFB > PLAIN",)), y, c)
    model = core.compile_model(g.model([y]), "NUMPY")
    assert model.report().reorders == 0
    x = np.random.default_rng(3).random(DIMS, np.float32)
    np.testing.assert_array_equal(model({"x": x})[0], mixed([mixed([x, value]), value]))


@pytest.mark.parametrize("layout", [NHWC, YXFB, FYXB])
@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "string"])
def test_every_data_type_can_be_reordered(core: dovetail.Core, layout: Layout, dtype: str) -> None:
    class Same(HostKernel):
        """A copy."""

        def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
            return [HostConfig.uniform(inputs, outputs, layout)]

        def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
            outputs[0][...] = inputs[0]

    class Through(Operator):
        """The same."""

        domain = "test.layouts"
        kernels = (Same(),)

    g = GraphBuilder()
    y = g.node(Through(), g.input("x", dtype, DIMS))
    numbers = np.arange(120).reshape(DIMS)
    x = numbers.astype(str).astype(object) if dtype == "string" else numbers.astype(dtype)
    model = core.compile_model(g.model([y]), "NUMPY")
    np.testing.assert_array_equal(model({"x": x})[0], x)
    assert model.report().reorders == 2
