"""Layouts: any assignment of accepted layouts gives the same result, with the least memory reordered."""

import copy
import itertools
import pickle
import random
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import ANY, BYXF, FYXB, PLAIN, YXFB, LayerConfig, Layout, TypedNode
from dovetail.errors import UsageError
from dovetail.graph import DType, Graph, GraphBuilder, TensorType
from dovetail.op import Operator
from dovetail.passes import layout as layout_pass
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import ENTRIES, Reorder, assign_layouts

DIMS = (2, 3, 4, 5)
Choices = dict[str, tuple[LayerConfig, ...]]


class Mix(Operator):
    """Weighted sum of all inputs; the weights of the elements depend on their place, so a wrong layout shows."""

    domain = "test"
    inputs = ("inputs*",)
    outputs = ("Y",)


def mix(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    weights = np.arange(1.0, np.prod(DIMS) + 1).reshape(DIMS)
    return sum((i + 1) * a for i, a in enumerate(arrays)) * 0.5 + weights


def random_case(seed: int, nodes: int, kinds: Sequence[Layout]) -> tuple[Graph, Choices]:
    choose = random.Random(seed)
    g = GraphBuilder()
    values = [g.input("x", "float32", DIMS), g.constant(np.random.default_rng(seed).random(DIMS), "float32", name="c")]
    choices: Choices = {}
    for i in range(nodes):
        reads = choose.sample(values, k=choose.randint(1, min(3, len(values))))
        values.append(g.node(Mix(), *reads, name=f"n{i}"))
        configs = []
        for _ in range(choose.randint(1, 3)):
            if choose.random() < 0.25:
                configs.append(LayerConfig((ANY,) * len(reads), (ANY,)))
            else:
                configs.append(LayerConfig(tuple(choose.choice(kinds) for _ in reads), (choose.choice(kinds),)))
        choices[f"n{i}"] = tuple(configs)
    outputs = dict.fromkeys((values[-1], choose.choice(values[2:])))
    return fold_constants(g.graph(tuple(outputs))), choices


def in_layout(graph: Graph, choices: Choices) -> Graph:
    return assign_layouts(graph, lambda node: choices[node.name])


def stored(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """The array in the order of memory, flat."""
    return np.ascontiguousarray(array.transpose(layout.order(array.ndim))).ravel()


def loaded(memory: NDArray[Any], layout: Layout) -> NDArray[Any]:
    order = layout.order(len(DIMS))
    return memory.reshape([DIMS[d] for d in order]).transpose(np.argsort(order))


def accepted(node: TypedNode, configs: Sequence[LayerConfig]) -> bool:
    found = LayerConfig(tuple(t.layout for t in node.inputs if t), tuple(t.layout for t in node.outputs))
    for config in configs:
        resolved = itertools.chain(zip(config.inputs, found.inputs, strict=True), zip(config.outputs, found.outputs, strict=True))
        pairs = list(resolved)
        wild = {got for want, got in pairs if want == ANY}
        if all(want in (ANY, got) for want, got in pairs) and len(wild) <= 1:
            return True
    return False


def run(graph: Graph, x: NDArray[Any], choices: Choices | None) -> list[NDArray[Any]]:
    """Run on flat memory; a node sees its inputs only as the layout of their type says."""
    memory = {"x": stored(x, PLAIN)}
    memory |= {n: stored(a.astype(np.float64), graph.types[n].layout) for n, a in graph.constants.items()}
    for node in graph.nodes:
        typed = TypedNode.of(node, graph)
        inputs = [loaded(memory[n], graph.types[n].layout) for n in node.inputs]
        if not isinstance(node.op, Reorder):
            assert choices is None or accepted(typed, choices[node.name]), node.name
        result = inputs[0] if isinstance(node.op, Reorder) else mix(inputs)
        memory[node.outputs[0]] = stored(result, graph.types[node.outputs[0]].layout)
    assert all(graph.types[n].layout == PLAIN for n in graph.outputs)
    return [memory[n].reshape(DIMS) for n in graph.outputs]


@pytest.mark.parametrize("block", range(10))
def test_any_assignment_of_layouts_gives_the_same_result(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        graph, choices = random_case(seed, 1 + seed % 9, (PLAIN, BYXF, YXFB, FYXB))
        x = np.random.default_rng(seed).standard_normal(DIMS)
        for got, want in zip(run(in_layout(graph, choices), x, choices), run(graph, x, None), strict=True):
            np.testing.assert_array_equal(got, want)


def reordered(graph: Graph) -> int:
    return sum(graph.types[n.inputs[0]].nbytes for n in graph.nodes if isinstance(n.op, Reorder))


def least(graph: Graph, choices: Choices, kinds: Sequence[Layout]) -> int:
    """The optimum by trying everything."""
    every = []
    for node in graph.nodes:
        options = []
        for config in choices[node.name]:
            for layout in kinds if ANY in (*config.inputs, *config.outputs) else (PLAIN,):
                fill = [tuple(layout if c == ANY else c for c in side) for side in (config.inputs, config.outputs)]
                options.append(LayerConfig(fill[0], fill[1]))
        every.append(tuple(dict.fromkeys(options)))
    best = None
    for assignment in itertools.product(*every):
        home = {"x": PLAIN}
        wanted: dict[str, set[Layout]] = {}
        for node, config in zip(graph.nodes, assignment, strict=True):
            for name, layout in zip(node.inputs, config.inputs, strict=True):
                wanted.setdefault(name, set()).add(layout)
            home[node.outputs[0]] = config.outputs[0]
        for name in graph.outputs:
            wanted.setdefault(name, set()).add(PLAIN)
        cost = sum(len(wants - {home[n]}) * graph.types[n].nbytes for n, wants in wanted.items() if n in home)
        best = cost if best is None else min(best, cost)
    assert best is not None
    return best


@pytest.mark.parametrize("few", [1, 4])
def test_the_least_memory_is_reordered(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first search drops states, and bounds the second one."""
    monkeypatch.setattr(layout_pass, "FEW", few)
    kinds = (PLAIN, BYXF, YXFB)
    for seed in range(60):
        graph, choices = random_case(1000 + seed, 1 + seed % 5, kinds)
        assert reordered(in_layout(graph, choices)) == least(graph, choices, kinds), seed


def test_no_state_is_missed_that_another_imitates(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        graph, choices = random_case(2000 + seed, 1 + seed % 9, (PLAIN, BYXF, YXFB))
        found = []
        for least_states in (1, 10**9):
            monkeypatch.setattr(layout_pass, "LEAST", least_states)
            found.append(reordered(in_layout(graph, choices)))
        assert found[0] == found[1], seed


def chain(*layouts: Layout) -> tuple[Graph, Choices]:
    g = GraphBuilder()
    y = g.input("x", "float32", DIMS)
    choices = {}
    for i, layout in enumerate(layouts):
        y = g.node(Mix(), y, name=f"n{i}")
        choices[f"n{i}"] = (LayerConfig((layout,), (layout,)),)
    return fold_constants(g.graph([y])), choices


def names(graph: Graph) -> list[str]:
    return [n.name for n in graph.nodes]


def test_an_island_costs_one_reorder_in_and_one_out() -> None:
    graph = in_layout(*chain(PLAIN, BYXF, ANY, ANY, BYXF, ANY, PLAIN))
    assert [isinstance(n.op, Reorder) for n in graph.nodes].count(True) == 2
    assert {graph.types[f"n{i}:0"].layout for i in range(1, 5)} == {BYXF}


def test_any_passes_through() -> None:
    graph = in_layout(*chain(BYXF, ANY, ANY, BYXF))
    assert [isinstance(n.op, Reorder) for n in graph.nodes] == [True, False, False, False, False, True]
    assert {graph.types[f"n{i}:0"].layout for i in range(4)} == {BYXF}


def test_a_plain_graph_comes_back_as_it_was() -> None:
    graph, choices = chain(PLAIN, PLAIN)
    assert in_layout(graph, choices) is graph


def test_one_reorder_serves_all_readers() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    ends = [g.node(Mix(), x, name=f"n{i}") for i in range(3)]
    graph = fold_constants(g.graph(ends))
    config = LayerConfig((BYXF,), (PLAIN,))
    result = in_layout(graph, {f"n{i}": (config,) for i in range(3)})
    assert names(result) == ["reorder:x@BYXF", "n0", "n1", "n2"]


def test_a_constant_is_laid_out_and_not_reordered() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    c = g.constant(np.zeros(DIMS), "float32", name="c")
    graph = fold_constants(g.graph([g.node(Mix(), x, c, name="n0")]))
    result = in_layout(graph, {"n0": (LayerConfig((PLAIN, FYXB), (PLAIN,)),)})
    assert names(result) == ["n0"]
    assert result.types[result.nodes[0].inputs[1]].layout == FYXB


def test_the_first_configuration_wins_a_tie() -> None:
    graph, _ = chain(PLAIN)
    first, second = LayerConfig((PLAIN,), (BYXF,)), LayerConfig((BYXF,), (PLAIN,))
    for configs in ((first, second), (second, first)):
        result = in_layout(graph, {"n0": configs})
        assert result.types["n0:0"].layout == configs[0].outputs[0]


@pytest.mark.parametrize(("share", "reorders"), [(0.5, 2), (1.5, 3)])
def test_a_configuration_costs_as_much_as_it_says(share: float, reorders: int) -> None:
    """A slower configuration is taken only where it costs less than the reorder that it saves."""
    graph, _ = chain(PLAIN, PLAIN, PLAIN)
    nhwc, other = LayerConfig((BYXF,), (BYXF,)), LayerConfig((FYXB,), (FYXB,))
    slower = LayerConfig((FYXB,), (FYXB,), (), int(share * graph.types["x"].nbytes))
    result = in_layout(graph, {"n0": (nhwc, slower), "n1": (other,), "n2": (other,)})
    assert sum(isinstance(n.op, Reorder) for n in result.nodes) == reorders


def test_opaque_tokens_are_only_compared() -> None:
    own = Layout("acme-tiles")
    graph = in_layout(*chain(own, ANY, own))
    assert [isinstance(n.op, Reorder) for n in graph.nodes] == [True, False, False, False, True]
    with pytest.raises(UsageError, match="no order"):
        own.order(4)
    with pytest.raises(UsageError, match="no order"):
        own.memory_dims((1, 2, 3, 4))


def test_blocked_layouts() -> None:
    sixteen = Layout.of("nChw16c")
    assert sixteen.block == 16
    assert Layout.of("nCdhw8c").memory_dims((2, 17, 3, 4, 5)) == (2, 3, 3, 4, 5, 8)
    assert TensorType(DType.FLOAT32, (2, 0, 3), None, Layout.of("nCw4c")).memory_dims == (2, 0, 3, 4)
    assert not BYXF.block
    with pytest.raises(UsageError, match="nChw16c has 4 dimensions, not 3"):
        sixteen.memory_dims((1, 2, 3))
    with pytest.raises(UsageError, match="no order"):
        sixteen.order(4)


@pytest.mark.parametrize(("channels", "reorders"), [(DIMS[1], 2), (1, 4)])
def test_any_is_blocked_only_where_the_channels_are_as_many(channels: int, reorders: int) -> None:
    g = GraphBuilder()
    first = g.node(Mix(), g.input("x", "float32", DIMS), name="n0")
    factor = g.constant(np.ones((1, channels, 1, 1), np.float32), name="f")
    graph = fold_constants(g.graph([g.node(Mix(), g.node(Mix(), first, factor, name="n1"), name="n2")]))
    blocked = LayerConfig((Layout.of("nChw8c"),), (Layout.of("nChw8c"),))
    result = in_layout(graph, {"n0": (blocked,), "n1": (LayerConfig((ANY, ANY), (ANY,)),), "n2": (blocked,)})
    assert sum(isinstance(n.op, Reorder) for n in result.nodes) == reorders


def test_a_second_search_that_loses_the_way_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less room than the first one it drops that way, and all that it keeps cost more."""
    found: list[Any] = []
    search = layout_pass._search
    monkeypatch.setattr(layout_pass, "_search", lambda *given: found.append(search(*given)) or found[-1])
    for name, value in (("FEW", 4), ("BEAM", 1), ("LEAST", 1)):
        monkeypatch.setattr(layout_pass, name, value)
    for seed in range(300):
        in_layout(*random_case(seed, 9, (PLAIN, BYXF, YXFB)))
    assert any(step is None for step, _ in found)


def test_a_layout_is_one_object_for_each_name() -> None:
    token = Layout("token")
    assert Layout("token") is token is not Layout("other")
    assert pickle.loads(pickle.dumps(token)) is copy.deepcopy(token) is token
    with pytest.raises(FrozenInstanceError):
        token.name = "other"


def test_layout_names() -> None:
    assert Layout.of("nhwc") == Layout.of("byxf") == BYXF
    assert Layout.of("BFYX") == Layout.of("NCHW") == PLAIN
    assert Layout.of("nChw16c").name == "nChw16c"
    assert BYXF.order(3) == (0, 2, 1)
    with pytest.raises(UsageError, match="YXFB has no order of 3"):
        YXFB.order(3)


def test_any_leaves_scalars_out() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    s = g.constant(np.float32(2).reshape(()), name="s")
    first = g.node(Mix(), x, name="n0")
    graph = fold_constants(g.graph([g.node(Mix(), g.node(Mix(), first, s, name="n1"), name="n2")]))
    nhwc = LayerConfig((BYXF,), (BYXF,))
    result = in_layout(graph, {"n0": (nhwc,), "n1": (LayerConfig((ANY, PLAIN), (ANY,)),), "n2": (nhwc,)})
    assert names(result) == ["reorder:x@BYXF", "n0", "n1", "n2", "reorder:n2:0@PLAIN"]
    assert result.types["n1:0"].layout == BYXF


def test_shapes_in_memory() -> None:
    tensor = graph_type((2, 3, 4, 5)).with_layout(BYXF)
    assert (tensor.order, tensor.memory_dims) == ((0, 2, 3, 1), (2, 4, 5, 3))
    assert graph_type((2, 3)).memory_dims == (2, 3)


def graph_type(dims: tuple[int, ...]) -> TensorType:
    return TensorType(DType.FLOAT32, dims)


class Work:
    """Counts the values that the search copies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.values = 0
        advance = layout_pass._advance

        def counted(way: Any, alive: Any) -> Any:
            self.steps += 1
            self.values += len(alive)
            return advance(way, alive)

        monkeypatch.setattr(layout_pass, "_advance", counted)


def fan(width: int, joined: bool) -> tuple[Graph, Choices]:
    """Nodes that read one value in several layouts, their results all outputs, or added up in the end."""
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    values, choices = [], {}
    for i in range(width):
        values.append(g.node(Mix(), x, name=f"n{i}"))
        kinds = (BYXF, YXFB, FYXB) if i % 2 else (BYXF, FYXB)
        choices[f"n{i}"] = tuple(LayerConfig((kind,), (kind,)) for kind in kinds)
    outputs = values
    while joined and len(values) > 1:
        pairs = list(itertools.zip_longest(values[::2], values[1::2], fillvalue=x))
        outputs = values = [g.node(Mix(), *pair, name=f"a{len(choices) + i}") for i, pair in enumerate(pairs)]
        for i in range(len(choices), len(choices) + len(pairs)):
            choices[f"a{i}"] = (LayerConfig((ANY, ANY), (ANY,)), LayerConfig((YXFB, PLAIN), (BYXF,)))
    return fold_constants(g.graph(outputs)), choices


def test_the_work_for_outputs_of_one_value_grows_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, choices = fan(60, joined=False)
    work = Work(monkeypatch)
    found = in_layout(graph, choices)
    assert work.steps <= 60 * 3 * 2**4  # configurations, and sets of layouts that x may have
    assert work.values <= work.steps
    x = np.random.default_rng(0).standard_normal(DIMS)
    for got, want in zip(run(found, x, choices), run(graph, x, None), strict=True):
        np.testing.assert_array_equal(got, want)
    # All in one layout: x is reordered once, and every output back.
    assert reordered(found) == 61 * graph.types["x"].nbytes


def test_the_work_for_many_values_alive_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, choices = fan(30, joined=True)
    work = Work(monkeypatch)
    found = in_layout(graph, choices)
    assert work.values <= 4 * ENTRIES * len(graph.nodes)
    x = np.random.default_rng(0).standard_normal(DIMS)
    np.testing.assert_array_equal(run(found, x, choices)[0], run(graph, x, None)[0])


def test_the_work_for_values_that_live_long_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pyramid: each level is read again much later, and every node takes three layouts."""
    g = GraphBuilder()
    values, choices = [g.input("x", "float32", DIMS)], {}
    for i in range(12):
        values.append(g.node(Mix(), values[-1], name=f"n{i}"))
        choices[f"n{i}"] = tuple(LayerConfig((kind,), (kind,), cost=40 * rank) for rank, kind in enumerate((BYXF, YXFB, FYXB)))
    total = values[-1]
    for i, value in enumerate(values[-2:0:-1]):
        total = g.node(Mix(), total, value, name=f"a{i}")
        choices[f"a{i}"] = (LayerConfig((ANY, ANY), (ANY,)), LayerConfig((PLAIN, PLAIN), (PLAIN,)))
    graph = fold_constants(g.graph([total]))
    work = Work(monkeypatch)
    found = in_layout(graph, choices)
    assert work.steps <= 200 * len(graph.nodes)  # all sets of layouts of the levels would be 3**11
    assert reordered(found) == 2 * graph.types["x"].nbytes


def test_a_configuration_that_does_not_hold_is_not_taken() -> None:
    graph, _ = chain(PLAIN)
    asked = []

    def holds(layout: Layout, answer: bool) -> LayerConfig:
        return LayerConfig((layout,), (layout,), holds=lambda: asked.append(layout) or answer)  # type: ignore[func-returns-value]

    first = LayerConfig((BYXF,), (BYXF,), cost=10**6)
    for others in itertools.permutations([holds(PLAIN, False), holds(FYXB, True)]):
        asked.clear()
        found = in_layout(graph, {"n0": (first, *others)})
        assert asked == [PLAIN, FYXB]
        assert {found.types[node.inputs[0]].layout for node in found.nodes if node.name == "n0"} == {FYXB}


def test_a_configuration_that_is_not_wanted_is_not_asked_for() -> None:
    graph, _ = chain(PLAIN)
    never = LayerConfig((BYXF,), (BYXF,), cost=1, holds=lambda: pytest.fail("asked"))
    wanted = LayerConfig((FYXB,), (FYXB,))
    found = in_layout(graph, {"n0": (wanted, never)})
    assert {found.types[node.inputs[0]].layout for node in found.nodes if node.name == "n0"} == {FYXB}
