"""HETERO: where nodes go, what a placement costs, pins, and pipelines."""

import itertools
import logging
import math
import threading
from typing import Any

import numpy as np
import pytest
from faulty import Faulty

import dovetail
from dovetail.device import Accepted, DeviceInfo, Reason, Refusal
from dovetail.errors import DeviceNotFound, UsageError
from dovetail.graph import Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.tanh import Tanh
from dovetail_virtual_devices.costs import speeds
from dovetail_virtual_devices.cut import minimum_cut
from dovetail_virtual_devices.placement import Costs, first_accepting, least_transfer, pipeline

X = np.array([-1, 0.5, 2], np.float32)
WANT = 1 / (1 + np.exp(-np.tanh(np.maximum(X.astype(np.float64), 0))))


def chain(size: int | str = 3) -> Model:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Sigmoid(), g.node(Tanh(), g.node(Relu(), g.input("x", "float32", [size]))))])


def nothing(node: Any) -> bool:
    return False


def homes(report: Any) -> dict[str, str]:
    return {node.name: node.device for node in report.nodes}


# --- minimum cuts ----------------------------------------------------------------------------------------------------


def test_a_cut_made_by_hand() -> None:
    # b is cheaper on the second side by 3, but two edges of 2 hold it on the first.
    sides = {"a": (0.0, 10.0), "b": (5.0, 2.0), "c": (0.0, 10.0)}
    assert minimum_cut(sides, [("a", "b", 2.0), ("b", "c", 2.0)]) == {"a", "b", "c"}
    assert minimum_cut(sides, [("a", "b", 1.0), ("b", "c", 1.0)]) == {"a", "c"}
    assert minimum_cut({"a": (1.0, 1.0)}, []) == {"a"}
    assert minimum_cut({}, []) == set()


@pytest.mark.parametrize("seed", range(40))
def test_cuts_are_the_least_of_all_assignments(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = list(range(int(rng.integers(1, 9))))
    sides = {key: tuple(float(c) if c < 9 else math.inf for c in rng.integers(0, 10, 2)) for key in keys}
    sides = {key: (0.0, b) if math.isinf(a) and math.isinf(b) else (a, b) for key, (a, b) in sides.items()}
    edges = [(int(a), int(b), float(rng.integers(0, 6))) for a, b in rng.integers(0, len(keys), (len(keys) * 2, 2)) if a != b]

    def cost(first: set[int]) -> float:
        own = sum(sides[key][key not in first] for key in keys)
        return own + sum(c for a, b, c in edges if (a in first) != (b in first))

    every = [
        {k for k, chosen in zip(keys, row, strict=True) if chosen} for row in itertools.product((True, False), repeat=len(keys))
    ]
    assert cost(minimum_cut(sides, edges)) == min(map(cost, every))


# --- placements ------------------------------------------------------------------------------------------------------

ALL = Accepted("fast")
NONE = Refusal(Reason.OPERATOR, "no")


def infos(*kinds: str) -> dict[str, DeviceInfo]:
    return {
        f"D{i}": DeviceInfo(f"D{i}", f"D{i}", kind, kind, priority=-i if kind == "CPU" else 10) for i, kind in enumerate(kinds)
    }


def costs_of(model: Model, devices: dict[str, DeviceInfo], refused: dict[str, tuple[str, ...]]) -> Costs:
    graph = dovetail.Core(config=False).analyze(model)
    answers = {n.name: {d: NONE if d in refused.get(n.name, ()) else ALL for d in devices} for n in graph.nodes}
    return Costs(graph, answers, speeds(devices))


def network(depth: int, channels: int, side: int) -> Model:
    """Convolutions, each with Relu, and an addition round every second one."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [1, channels, side, side])
    for index in range(depth):
        weights = g.constant(np.full((channels, channels, 3, 3), 0.01, np.float32))
        y = g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), x, weights, name=f"conv{index}"), name=f"relu{index}")
        x = g.node(Add(), x, y, name=f"add{index}") if index % 2 else y
    return g.model([x])


def test_a_small_node_that_a_gpu_refuses_does_not_pull_its_neighbours_along() -> None:
    costs = costs_of(network(6, 64, 56), infos("GPU", "CPU"), {"relu3": ("D0",)})
    found = least_transfer(costs)
    assert [name for name, home in found.items() if home == "D1"] == ["relu3"]


def test_cheap_nodes_between_two_that_a_gpu_refuses_stay_together() -> None:
    refused = dict.fromkeys(("relu0", "relu2", "relu4"), ("D0",))
    costs = costs_of(network(5, 2, 4), infos("GPU", "CPU"), refused)
    greedy, found = first_accepting(costs), least_transfer(costs)
    assert costs.total(found) < costs.total(greedy)
    assert set(found.values()) == {"D1"}, "everything is small: no transfer is worth it"


@pytest.mark.parametrize("kinds", [("GPU", "CPU"), ("GPU", "GPU", "CPU"), ("CPU", "GPU", "CPU")])
@pytest.mark.parametrize("seed", range(6))
def test_a_placement_is_never_worse_than_the_first_that_accepts(kinds: tuple[str, ...], seed: int) -> None:
    rng = np.random.default_rng([seed, len(kinds)])
    model = network(int(rng.integers(1, 9)), int(rng.choice([1, 8, 64])), int(rng.choice([3, 28])))
    devices = infos(*kinds)
    names = [node.name for node in model.graph.nodes]
    refused = {name: tuple(rng.choice(list(devices), int(rng.integers(0, len(devices))), replace=False)) for name in names}
    costs = costs_of(model, devices, refused)
    found = least_transfer(costs)
    assert set(found) == {node.name for node in costs.nodes}
    assert not [name for name, home in found.items() if home in refused[name]]
    assert costs.total(found) <= costs.total(first_accepting(costs))


@pytest.mark.parametrize("seed", range(4))
def test_for_two_devices_no_placement_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = costs_of(network(4, int(rng.choice([1, 8, 64])), int(rng.choice([3, 28]))), infos("GPU", "CPU"), {"relu1": ("D0",)})
    names = list(costs.seconds)
    rows = itertools.product(*(costs.seconds[name] for name in names))
    least = min(costs.total(dict(zip(names, row, strict=True))) for row in rows)
    assert costs.total(least_transfer(costs)) == pytest.approx(least)


def test_stages_of_a_pipeline_are_of_equal_length_and_in_order() -> None:
    costs = costs_of(network(16, 64, 56), infos("GPU", "GPU"), {})
    found = pipeline(costs)
    order = [found[node.name] for node in costs.nodes]
    assert order == sorted(order)
    assert set(order) == {"D0", "D1"}
    shares = [sum(costs.seconds[name][home] for name, home in found.items() if home == device) for device in ("D0", "D1")]
    assert max(shares) < 0.7 * sum(shares)


@pytest.mark.parametrize("seed", range(8))
def test_no_other_bound_makes_the_slowest_of_two_stages_faster(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = costs_of(network(int(rng.integers(2, 12)), int(rng.choice([2, 32])), 14), infos("GPU", "GPU"), {})
    names = [node.name for node in costs.nodes]

    def slowest(bound: int) -> float:
        stages = [names[:bound], names[bound:]]
        own = [sum(costs.seconds[n][f"D{i}"] for n in stage) for i, stage in enumerate(stages)]
        crossing = {(a, v) for a, b, v in costs.edges if a in stages[0] and b in stages[1]}
        # Half of the way is the first device's, half the second's.
        half = costs.moving("D0", "D1", sum(v for _, v in crossing)) / 2 if 0 < bound < len(names) else 0.0
        return max(own[0] + half, own[1] + half)

    found = pipeline(costs)
    assert slowest(sum(home == "D0" for home in found.values())) <= min(map(slowest, range(len(names) + 1))) * 1.0001


# --- through a session -------------------------------------------------------------------------------------------------


def test_a_node_that_the_first_device_refuses_runs_on_the_second(toy_core: Any, caplog: pytest.LogCaptureFixture) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type == "Tanh", B=nothing)
    with caplog.at_level(logging.WARNING, "dovetail"):
        compiled = core.compile_model(chain(), "HETERO:A,B", {"MODEL_DISTRIBUTION_POLICY": "FIRST_ACCEPTS"})
    assert not caplog.records, "the user listed both devices"
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert (compiled.device, compiled.devices) == ("HETERO:A,B", ("A.0", "B.0"))
    assert homes(compiled.report()) == {"relu": "A.0", "tanh": "B.0", "sigmoid": "A.0"}
    assert compiled.report().nodes[1].refusals == (("A.0", Refusal(Reason.OPERATOR, "Tanh")),)
    # For three numbers no transfer is worth it.
    compiled = core.compile_model(chain(), "HETERO:A,B")
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert compiled.report().partitions < 3


def test_pins_by_name_by_type_and_back_from_a_query(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    pinned = core.compile_model(chain(), "HETERO:A,B", {"AFFINITIES": {"tanh": "b"}})
    assert homes(pinned.report())["tanh"] == "B.0"
    np.testing.assert_allclose(pinned(X)[0], WANT, rtol=1e-6)
    answer = core.query_model(chain(), "HETERO:A,B")
    assert homes(core.compile_model(chain(), "HETERO:A,B", {"AFFINITIES": answer}).report()) == answer
    everywhere = dict.fromkeys(answer, "B.0")
    assert homes(core.compile_model(chain(), "HETERO:A,B", {"AFFINITIES": everywhere}).report()) == everywhere


def test_affinities_of_nodes_go_into_a_model_and_back_from_a_query(toy_core: Any, caplog: pytest.LogCaptureFixture) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    model = chain().with_affinities({"tanh": "b", "relu": Refusal(Reason.OPERATOR, "no")})
    assert model.affinities == {"tanh": "b"}
    assert [node.affinity for node in model.graph.nodes] == ["", "b", ""]
    compiled = core.compile_model(model, "HETERO:A,B")
    assert homes(compiled.report())["tanh"] == "B.0"
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    answer = core.query_model(model, "HETERO:A,B")
    assert answer["tanh"] == "B.0"
    assert homes(core.compile_model(chain().with_affinities(answer), "HETERO:A,B").report()) == answer
    # The property goes before, and an affinity can be taken away.
    assert homes(core.compile_model(model, "HETERO:A,B", {"AFFINITIES": {"tanh": "A"}}).report())["tanh"] == "A.0"
    assert model.with_affinities({"tanh": ""}).affinities == {}
    assert not caplog.records


def test_affinities_that_cannot_be_kept_are_errors_or_warnings(toy_core: Any, caplog: pytest.LogCaptureFixture) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    with pytest.raises(UsageError, match=r"has no node 'tan'\n  Did you mean 'tanh'\?"):
        chain().with_affinities({"tan": "A"})
    core.compile_model(chain(), "HETERO:A,B", {"AFFINITIES": {"tan": "A"}})
    assert "AFFINITIES has 'tan', which <graph> does not have. Did you mean 'tanh'?" in caplog.text
    caplog.clear()
    model = chain().with_affinities({"tanh": "b"})
    core.compile_model(model, "B")
    assert not caplog.records
    core.compile_model(model, "A")
    assert "A.0 places no nodes; affinities left out: tanh on b" in caplog.text


def test_nodes_that_a_pass_merges_must_have_one_affinity(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    g = dovetail.GraphBuilder()
    padded = g.node(Pad(), g.input("x", "float32", [1, 1, 3, 3]), g.constant([0, 0, 1, 1, 0, 0, 1, 1]), name="pad")
    y = g.node(Conv(), padded, g.constant(np.ones((1, 1, 3, 3), np.float32)), name="conv")
    model = g.model([y])
    merged = core.compile_model(model, "HETERO:A,B", {"AFFINITIES": {"pad": "B", "conv": "B"}})
    assert homes(merged.report()) == {"conv": "B.0"}
    differing = {"AFFINITIES": {"pad": "A", "conv": "B"}}
    with pytest.raises(UsageError, match=r"'conv' \(Conv\) stands for nodes whose affinities differ: pad on A.0, conv on B.0"):
        core.compile_model(model, "HETERO:A,B", differing)
    apart = core.compile_model(model, "HETERO:A,B", {**differing, "PASSES": "-fold_pad"})
    assert homes(apart.report()) == {"pad": "A.0", "conv": "B.0"}


def test_pins_hold_for_what_a_node_becomes(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [2, 3])
    y = g.node(Relu(), g.node(MatMul(), x, g.constant(np.eye(3, dtype=np.float32)), name="product"), name="last")
    compiled = core.compile_model(g.model([y]), "HETERO:A,B", {"AFFINITIES": {"product": "B", "last": "A"}})
    assert homes(compiled.report()) == {"product": "B.0", "last": "A.0"}


@pytest.mark.parametrize(
    ("device", "properties", "error", "message"),
    [
        ("HETERO:", {}, UsageError, "'HETERO:' lists no devices\n  write HETERO:A,B"),
        ("HETERO:A,Z", {}, DeviceNotFound, "no installed plugin provides the device 'Z'"),
        (
            "HETERO:A,B",
            {"AFFINITIES": {"tanh": "C"}},
            UsageError,
            "node 'tanh' has the affinity 'C'\n  devices listed: B.0, A.0",
        ),
        ("HETERO:A,B", {"AFFINITIES": {"tanh": "A"}}, UsageError, "'tanh' (Tanh) has the affinity A.0, which refuses it"),
        ("HETERO:A,B", {"AFFINITIES": 3}, UsageError, "property AFFINITIES of HETERO is 3; accepted: a mapping"),
        (
            "HETERO:A,B",
            {"MODEL_DISTRIBUTION_POLICY": "EVEN"},
            UsageError,
            "property MODEL_DISTRIBUTION_POLICY of HETERO is 'EVEN'",
        ),
    ],
)
def test_what_makes_no_sense(toy_core: Any, device: str, properties: Any, error: type[Exception], message: str) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type == "Tanh", B=nothing)
    with pytest.raises(error) as caught:
        core.compile_model(chain(), device, properties)
    assert message in str(caught.value)


def test_the_stages_of_consecutive_requests_run_at_the_same_time(toy_core: Any) -> None:
    both = threading.Barrier(2, timeout=30)
    runs = {"A.0": 0, "B.0": 0}

    class Meeting(Faulty):
        """The second and later runs of the first stage wait for the second stage to run an earlier request."""

        def fault(self, number: int) -> None:
            runs[self.info.name] = number
            if (self.info.name == "A.0" and number > 1) or (self.info.name == "B.0" and number < 6):
                both.wait()  # raises when the other stage does not run meanwhile

    core, _ = toy_core(A=Meeting, B=Meeting, C=nothing)
    model = network(4, 2, 5)
    compiled = core.compile_model(model, "HETERO:A,B", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"})
    queue = dovetail.AsyncInferQueue(compiled, 2)
    inputs = [np.full((1, 2, 5, 5), index, np.float32) for index in range(6)]
    found: dict[int, Any] = {}
    queue.set_callback(lambda request, index: found.__setitem__(index, request.results[0]))
    # Not `map`, which waits for the oldest run: where the second run is the first to reach A, that one waits for a third in A.
    for index, x in enumerate(inputs):
        queue.start_async(x, index)
    queue.wait_all()
    assert runs == {"A.0": 6, "B.0": 6}
    for index, x in enumerate(inputs):
        np.testing.assert_array_equal(found[index], core.compile_model(model, "C")(x)[0])


def test_a_pipeline_runs_and_says_how_many_requests_overlap(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    model = network(4, 2, 5)
    x = np.random.default_rng(4).standard_normal((1, 2, 5, 5)).astype(np.float32)
    want = core.compile_model(model, "A")(x)[0]
    compiled = core.compile_model(model, "HETERO:A,B", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"})
    assert compiled.optimal_number_of_infer_requests == 4
    np.testing.assert_array_equal(compiled(x)[0], want)
    placed = list(homes(compiled.report()).values())
    assert placed == sorted(placed)
    queue = dovetail.AsyncInferQueue(compiled, 2)
    found: dict[int, Any] = {}
    queue.set_callback(lambda request, index: found.__setitem__(index, request.results[0]))
    for index in range(6):
        queue.start_async(x * index, index)
    queue.wait_all()
    for index in range(6):
        np.testing.assert_array_equal(found[index], core.compile_model(model, "A")(x * index)[0])
