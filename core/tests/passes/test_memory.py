"""The memory plan: no two living blocks overlap, and sharing never loses a value that is still needed."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.devices import memory
from dovetail.devices.memory import (
    Lifetime,
    MemoryPlan,
    plan_graph,
    plan_memory,
    plan_regions,
    share_storage,
    shares_again,
)
from dovetail.graph import Graph, GraphBuilder, Node
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.identity import Identity


class Step(Operator):
    domain = "test"
    inputs = ("X", "rest*")
    outputs = ("Y",)
    in_place = True


def in_place(node: Node) -> Sequence[str]:
    return node.inputs if node.op.in_place else ()


def typed(g: GraphBuilder, *outputs: str) -> Graph:
    return fold_constants(g.graph(outputs))


blocks = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 6)), max_size=40)


few = pytest.mark.parametrize("few", [memory.MANY, 0], ids=["few", "many"])
"""Small lists of blocks, planned as they are and as long lists are."""


def planned(lives: list[Lifetime], few: int) -> tuple[Mapping[str, int], int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "MANY", few)
        return plan_memory(lives)


def largest_sum(lives: list[Lifetime]) -> int:
    """The bytes, each block aligned, of the step at which most live: no arena is smaller."""
    steps = {block.first for block in lives}
    return max((sum(-(-max(b.nbytes, 1) // 64) * 64 for b in lives if b.first <= s <= b.last) for s in steps), default=0)


@settings(max_examples=300, deadline=None)
@given(spans=blocks)
def test_long_lives_are_planned_as_short_ones(spans: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(f"b{i}", size, first - 1, first + length) for i, (size, first, length) in enumerate(spans)]
    found = planned(lives, memory.MANY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LONG", -1)
        assert planned(lives, memory.MANY) == found


@few
@settings(max_examples=300, deadline=None)
@given(spans=blocks)
def test_blocks_that_live_together_never_overlap(few: int, spans: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(f"b{i}", size, first, first + length) for i, (size, first, length) in enumerate(spans)]
    offsets, peak = planned(lives, few)
    assert peak >= largest_sum(lives)
    for i, a in enumerate(lives):
        assert offsets[a.name] % 64 == 0
        assert offsets[a.name] + max(a.nbytes, 1) <= peak
        for b in lives[:i]:
            if a.first <= b.last and b.first <= a.last:
                low, high = sorted((a, b), key=lambda x: offsets[x.name])
                assert offsets[low.name] + max(low.nbytes, 1) <= offsets[high.name]


@settings(max_examples=300, deadline=None)
@given(blocks)
def test_regions_are_shared_whole_or_not_at_all(spans: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(f"b{i}", size, first, first + length) for i, (size, first, length) in enumerate(spans)]
    offsets, peak = plan_regions(lives)
    sizes: dict[int, int] = {}
    for a in lives:
        sizes[offsets[a.name]] = max(sizes.get(offsets[a.name], 1), a.nbytes)
    ends = sorted((offset, offset + size) for offset, size in sizes.items())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert not ends or ends[-1][1] <= peak
    for i, a in enumerate(lives):
        for b in lives[:i]:
            assert offsets[a.name] != offsets[b.name] or a.last < b.first or b.last < a.first


@settings(max_examples=300, deadline=None)
@given(blocks)
def test_regions_do_not_depend_on_how_long_blocks_live_in_the_mean(spans: list[tuple[int, int, int]]) -> None:
    """Which decides whether regions are looked for by steps or in arrays."""
    lives = [Lifetime(f"b{i}", size, first - 1, first + length) for i, (size, first, length) in enumerate(spans)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LONG", -2)
        in_arrays = plan_regions(lives)
    assert plan_regions(lives) == in_arrays


@settings(max_examples=300, deadline=None)
@given(blocks)
def test_many_blocks_take_no_larger_arena_than_few(spans: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(f"b{i}", size, first, first + length) for i, (size, first, length) in enumerate(spans)]
    assert planned(lives, 0)[1] <= planned(lives, 100)[1]


def in_other_sizes(lives: list[Lifetime], sizes: Sequence[int]) -> MemoryPlan | None:
    """The plan for blocks of these sizes, in the order of the plan for their own ones."""
    whole = {block.name: 64 * size for block, size in zip(lives, sizes, strict=True)}
    return MemoryPlan({}, *plan_memory(lives), tuple(lives)).resized(whole, whole.values)


@settings(max_examples=300, deadline=None)
@given(spans=blocks, data=st.data())
def test_other_sizes_in_the_same_order_never_overlap(spans: list[tuple[int, int, int]], data: st.DataObject) -> None:
    lives = [Lifetime(f"b{i}", size, first - 1, first + length) for i, (size, first, length) in enumerate(spans)]
    sizes = data.draw(st.lists(st.integers(1, 90), min_size=len(lives), max_size=len(lives)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "EXCESS", 1000)
        found = in_other_sizes(lives, sizes)
    assert found is not None
    ends = {block.name: found.offsets[block.name] + 64 * size for block, size in zip(lives, sizes, strict=True)}
    assert found.peak == max(ends.values(), default=0)
    assert found.unshared == 64 * sum(sizes)
    for one, other in itertools.combinations(lives, 2):
        if one.first <= other.last and other.first <= one.last:
            assert ends[one.name] <= found.offsets[other.name] or ends[other.name] <= found.offsets[one.name]


def test_the_order_of_blocks_is_kept_while_it_takes_little_more_memory() -> None:
    lives = [Lifetime("p", 640, 0, 0), Lifetime("q", 320, 0, 1), Lifetime("r", 128, 1, 1), Lifetime("s", 576, 1, 1)]
    larger = in_other_sizes(lives, (20, 10, 2, 18))
    assert larger is not None
    assert larger.offsets == {"p": 0, "s": 0, "q": 1280, "r": 1920}
    assert larger.peak == 2048
    smaller = larger.resized(dict.fromkeys("pqrs", 64), tuple)
    assert smaller is not None
    assert smaller.offsets == {"p": 0, "s": 0, "q": 64, "r": 128}
    assert in_other_sizes(lives, (30, 1, 30, 1)) is None, "r above q above p, where r could have the place of p"


def test_the_memory_of_other_sizes_is_planned_anew_for_other_blocks() -> None:
    plan = MemoryPlan({}, *plan_memory(lives := [Lifetime("a", 640, 0, 1), Lifetime("b", 320, 1, 2)]), tuple(lives))
    assert plan.resized({"a": 64}, tuple) is None
    assert plan.resized({"a": 64, "c": 64}, tuple) is None


@settings(max_examples=300, deadline=None)
@given(spans=blocks, data=st.data())
def test_regions_of_other_sizes_are_shared_whole_or_not_at_all(spans: list[tuple[int, int, int]], data: st.DataObject) -> None:
    lives = [Lifetime(f"b{i}", size, first - 1, first + length) for i, (size, first, length) in enumerate(spans)]
    drawn = data.draw(st.lists(st.integers(1, 90), min_size=len(lives), max_size=len(lives)))
    sizes = {block.name: 64 * size for block, size in zip(lives, drawn, strict=True)}
    plan = MemoryPlan({}, *plan_regions(lives), tuple(lives))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "EXCESS", 1000)
        found = plan.regions_resized(sizes, sizes.values)
    assert found is not None
    assert found.unshared == sum(sizes.values())
    ends = {name: found.offsets[name] + size for name, size in sizes.items()}
    assert found.peak == max(ends.values(), default=0)
    for one, other in itertools.combinations(lives, 2):
        apart = ends[one.name] <= found.offsets[other.name] or ends[other.name] <= found.offsets[one.name]
        assert apart or found.offsets[one.name] == found.offsets[other.name]
        assert apart or one.last < other.first or other.last < one.first


def test_regions_are_planned_anew_for_other_blocks_and_for_much_more_memory() -> None:
    lives = [Lifetime("a", 640, 0, 0), Lifetime("b", 640, 0, 0), Lifetime("c", 640, 1, 1), Lifetime("d", 640, 1, 1)]
    plan = MemoryPlan({}, *plan_regions(lives), tuple(lives))
    assert plan.regions_resized({"a": 64}, tuple) is None
    assert plan.regions_resized(dict.fromkeys("abce", 64), tuple) is None
    same = plan.regions_resized({"a": 64, "b": 6400, "c": 64, "d": 6400}, tuple)
    assert same is not None
    assert same.peak == 6464
    assert plan.regions_resized({"a": 64, "b": 6400, "c": 6400, "d": 64}, tuple) is None, "12,800 bytes where 6,464 live"


@pytest.mark.parametrize("plan", [plan_memory, plan_regions])
def test_a_graph_in_other_sizes_keeps_the_order_of_blocks(plan: Callable[..., Any]) -> None:
    plans = []
    for size in (16, 4000):
        g = GraphBuilder()
        x = g.input("x", "float32", [size])
        y = g.node(Step(), g.node(Step(), x, name="one"), name="two")
        graph = typed(g, y)
        earlier = plans[0] if plans else None
        storage = earlier.storage if earlier else share_storage(graph, lambda node: ())
        plans.append(plan_graph(graph, lambda node: (), lambda node: (100,), plan=plan, storage=storage, earlier=earlier))
    alone = plan_graph(graph, lambda node: (), lambda node: (100,), plan=plan)
    assert plans[1].like is plans[0]
    assert plans[1].offsets.keys() == alone.offsets.keys()
    assert plans[1].unshared == alone.unshared
    assert plans[1].peak <= memory.EXCESS * alone.peak


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), min_size=1, max_size=40))
def test_many_blocks_that_live_to_the_end_are_side_by_side(sizes: list[tuple[int, int]]) -> None:
    # As many outputs as nodes, each with scratch: the arena has no byte that is never needed.
    outputs = [Lifetime(f"o{i}", size, i, len(sizes)) for i, (size, _) in enumerate(sizes)]
    scratch = [Lifetime(f"s{i}", size, i, i) for i, (_, size) in enumerate(sizes)]
    _, peak = planned(outputs + scratch, 0)
    assert peak == largest_sum(outputs + scratch)


def test_many_blocks_in_fewer_bytes_than_the_order_of_time_takes() -> None:
    # By time c, of 2 units, finds free only b's one unit below a, and goes above a; by size it is at the bottom.
    lives = [Lifetime("a", 64, 1, 2), Lifetime("b", 64, 2, 3), Lifetime("c", 128, 0, 1)]
    assert planned(lives, 0)[1] == planned(lives, 100)[1] == largest_sum(lives) == 192


def test_a_chain_of_three_needs_two_blocks() -> None:
    _, peak = plan_memory([Lifetime("a", 640, 0, 1), Lifetime("b", 640, 1, 2), Lifetime("c", 640, 2, 3)])
    assert peak == 2 * 640


def test_an_in_place_chain_stays_in_one_block_and_off_the_input() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [100])
    y = x
    for _ in range(5):
        y = g.node(Step(), y)
    graph = typed(g, y)
    storage = share_storage(graph, in_place)
    assert len({storage[n.writes[0]] for n in graph.nodes}) == 1
    assert storage[y] != "x"
    plan = plan_graph(graph, in_place)
    assert plan_graph(graph, in_place, storage=storage) == plan
    assert plan.peak == 2 * 448
    assert plan.unshared == 6 * 448


def test_a_value_read_later_is_not_overwritten() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [8])
    a = g.node(Step(), x)
    b = g.node(Step(), a)
    c = g.node(Step(), b, a)
    storage = share_storage(typed(g, c), in_place)
    assert storage[b] != storage[a]
    assert storage[c] == storage[b]


def test_memory_is_shared_again_while_sizes_and_kernels_allow_it() -> None:
    def of(rows: int) -> Graph:
        g = GraphBuilder()
        x, y = g.input("x", "float32", [rows, 4]), g.input("y", "float32", [3, 4])
        return typed(g, g.node(Add(), g.node(Step(), g.node(Identity(), x)), y))

    storage = share_storage(graph := of(3), lambda node: node.inputs)
    assert storage[graph.outputs[0]] != graph.outputs[0]
    assert shares_again(of(3), storage, lambda node: node.inputs)
    assert not shares_again(of(1), storage, lambda node: node.inputs), "the sum is larger"
    assert not shares_again(of(3), storage, lambda node: ())


def test_outputs_stay_until_the_end() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [8])
    a = g.node(Step(), x)
    b = g.node(Step(), a)
    storage = share_storage(typed(g, a, b), in_place)
    assert storage[a] != storage[b]


def test_the_same_value_on_both_sides_is_not_taken_over() -> None:
    # The kernel may read element i of the second operand after it wrote element j of the result.
    g = GraphBuilder()
    x = g.input("x", "float32", [8])
    a = g.node(Step(), x)
    b = g.node(Step(), a, a)
    storage = share_storage(typed(g, b), in_place)
    assert storage[a] != storage[b]


def test_constants_are_not_written() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [8])
    c = g.constant([0.0] * 8, "float32")
    y = g.node(Step(), c, x)
    assert share_storage(typed(g, y), in_place)[y] == y


@pytest.mark.parametrize(
    ("reads", "later", "pairs", "shared"),
    [
        (["s"], [], {"s": 0}, True),
        (["s", "s"], [], {"s": 0}, False),  # element i of the second operand may be read after element j was written
        (["s"], ["s"], {"s": 0}, False),  # another node reads what the state was
        (["s"], [], {"x": 0}, False),  # the output continues another state
        (["s"], [], {}, False),
    ],
    ids=["", "read twice", "read later", "another state", "none"],
)
@pytest.mark.parametrize("size", [8, 1])
def test_a_node_writes_into_the_state_that_its_output_continues(
    reads: list[str], later: list[str], pairs: Mapping[str, int], shared: bool, size: int
) -> None:
    """Where no one reads the state afterwards, the node does so once, and the output has the state's type."""
    g = GraphBuilder()
    g.input("s", "float32", [size])
    x = g.input("x", "float32", [8])
    y = g.node(Step(), x, *reads)
    z = g.node(Step(), y, *later)
    graph = typed(g, y, z).replace(states=pairs)
    storage = share_storage(graph, lambda node: (), lambda node: {node.writes[0]: "s"} if "s" in node.reads else {})
    assert (storage[y] == "s") == (shared and size == 8)
    assert share_storage(graph, lambda node: ())[y] == y


def test_a_view_keeps_its_source_alive() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [8])
    a = g.node(Step(), x)
    view = g.node(Identity(), a)
    b = g.node(Step(), a)
    c = g.node(Step(), view, b)
    storage = share_storage(typed(g, c), in_place)
    assert storage[view] == storage[a]
    assert storage[b] != storage[a]


def test_scratch_lives_only_during_its_node() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [16])
    y = g.node(Step(), g.node(Step(), x))
    graph = typed(g, y)
    plan = plan_graph(graph, lambda node: (), scratch=lambda node: (6400,))
    assert plan.peak <= 6400 + 3 * 64
    assert {f"scratch:{n.name}:0" for n in graph.nodes} <= set(plan.offsets)


def test_inputs_that_a_run_leaves_as_they_are() -> None:
    """Of three inputs one is read to the end, one makes room for other values, and one for the scratch of a node."""
    g = GraphBuilder()
    early, late, small = (g.input(name, "float32", [size]) for name, size in (("early", 100), ("late", 100), ("small", 16)))
    y = g.node(Step(), g.node(Step(), g.node(Step(), early, small)), late)
    graph = typed(g, y)
    plan = plan_graph(graph, lambda node: ())
    assert plan.lasting(graph) >= {1}
    assert 0 not in plan.lasting(graph)
    taken = plan_graph(graph, lambda node: (), scratch=lambda node: (400, 64) if node is graph.nodes[2] else ())
    assert taken.lasting(graph) == {1}
    whole = typed(g, g.node(Step(), y, early, late, small))
    assert plan_graph(whole, lambda node: ()).lasting(whole) == {0, 1, 2}
