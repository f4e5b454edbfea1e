"""States: inputs that a request keeps, each continued by an output of every run."""

import pickle
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError, InputError, UsageError
from dovetail.graph import Model
from dovetail.planning.partition import partition
from dovetail.runtime.plan_request import PlanRequest
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.reduce_sum import ReduceSum

VIRTUAL = ["MULTI:NUMPY,NUMPY", "BATCH:NUMPY(2)", "AUTO:NUMPY"]


def accumulator(*, late: bool = False) -> Model:
    """total = past + x, y = total * 2 (`late`: y = past * 2): the state is the total, a vector of three."""
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "float32", ("n", 3)), g.input("past.a", "float32", (3,))
    total = g.node(Add(), past, g.node(ReduceSum(keepdims=False), x, g.constant([0], "int64")), outputs=["present.a"])
    g.node(Mul(), past if late else total, g.constant(2, "float32"), outputs=["y"])
    return g.model(["present.a", "y"])


X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", *VIRTUAL])
@pytest.mark.parametrize("late", [False, True])
def test_states_in_arrays_of_the_caller(core: Any, device: str, late: bool) -> None:
    with core.compile_model(accumulator(late=late), device, {"STATE": "past.*:present.*"}) as compiled:
        request, given = compiled.create_infer_request(), np.full(3, 2, np.float32)
        request.infer({"x": X})
        request.set_state({"past.a": given})
        request.infer({"x": X[:1]})
        np.testing.assert_array_equal(given, [3, 4, 5])
        given[:] = 1
        request.infer({"x": X})
        np.testing.assert_array_equal(given, [6, 8, 10])
        assert request.query_state()["past.a"] is given


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", *VIRTUAL])
def test_variants_of_a_model(core: Any, device: str) -> None:
    """Each is made once, and closed with the model."""
    model, made = accumulator(), list[int]()

    def kept() -> Model:
        made.append(1)
        return model.with_states("past.a:present.a")

    with core.compile_model(model, device) as compiled:
        for _ in range(2):
            request = compiled.variant("kept", kept).create_infer_request()
            for times in (1, 2):
                np.testing.assert_array_equal(request.infer({"x": X})["y"], np.array([10, 14, 18]) * times)
    assert made == [1]
    with pytest.raises(UsageError, match="closed"):
        request.infer({"x": X})


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("x", np.zeros(3, np.float32), r"'x' is not a state"),
        ("past.a", np.zeros(4, np.float32), r"float32\[3\].*float32\[4\]"),
        ("past.a", np.zeros(3), r"float32\[3\].*float64\[3\]"),
        ("past.a", [0, 0, 0], r"the array list"),
        ("past.a", np.zeros(6, np.float32)[::2], "gaps"),
    ],
)
def test_arrays_that_hold_no_state(core: Any, name: str, array: Any, reason: str) -> None:
    request = core.compile_model(accumulator(), "NUMPY", {"STATE": "past.*:present.*"}).create_infer_request()
    with pytest.raises(InputError, match=reason):
        request.set_state({name: array})


@pytest.mark.parametrize("device", ["NUMPY", *VIRTUAL])
@pytest.mark.parametrize("late", [False, True])
def test_a_request_keeps_its_states(core: Any, device: str, late: bool) -> None:
    with core.compile_model(accumulator(late=late), device, {"STATE": "past.*:present.*"}) as compiled:
        first, second = compiled.create_infer_request(), compiled.create_infer_request()
        assert (list(compiled.inputs), list(compiled.outputs)) == (["x"], ["y"])
        np.testing.assert_array_equal(first.query_state()["past.a"], [0, 0, 0])
        sums = np.zeros(3)
        for rows in (2, 1, 2, 0):
            before, sums = sums, sums + X[:rows].sum(0)
            results = first.infer({"x": X[:rows]})
            assert list(results) == ["y"]
            np.testing.assert_array_equal(results["y"], 2 * (before if late else sums))
            np.testing.assert_array_equal(first.query_state()["past.a"], sums)
        np.testing.assert_array_equal(second.query_state()["past.a"], [0, 0, 0])
        first.reset_state()
        first.infer(X[:1])
        np.testing.assert_array_equal(first.query_state()["past.a"], X[0])


def test_a_request_is_not_bound_again_after_larger_inputs(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tokens after a prompt. What larger inputs need is freed."""
    bound, closed = [], []
    wire, close = PlanRequest._wire, PlanRequest.close
    monkeypatch.setattr(PlanRequest, "_wire", lambda self, plan: bound.append(self) or wire(self, plan))
    monkeypatch.setattr(PlanRequest, "close", lambda self: closed.append(self) or close(self))
    with core.compile_model(accumulator(), "NUMPY", {"STATE": "past.a:present.a"}) as compiled:
        request, sums = compiled.create_infer_request(), np.zeros(3)
        for rows, count in ((1, 1), (2, 2), (1, 2), (1, 2), (2, 3), (0, 4), (2, 5), (1, 6)):
            sums = sums + X[:rows].sum(0)
            np.testing.assert_array_equal(request.infer(X[:rows])["y"], 2 * sums)
            assert len(bound) == count
        assert len(closed) == 4
    assert sorted(map(id, closed)) == sorted(map(id, bound))


def test_states_go_on_where_results_stay_on_the_device(core: Any) -> None:
    with core.compile_model(accumulator(), "NUMPY", {"STATE": "past.a:present.a"}) as compiled:
        request = compiled.create_infer_request()
        kept = [request.infer(X[:rows], on_device=True)["y"] for rows in (2, 1, 2)]
        for rows, one in zip((2, 3, 5), kept, strict=True):
            np.testing.assert_array_equal(np.asarray(one), 2 * np.concatenate([X, X[:1], X])[:rows].sum(0))
        np.testing.assert_array_equal(request.query_state()["past.a"], [11, 16, 21])


def test_states_may_be_set_and_are_those_of_runs_of_each_kind(core: Any) -> None:
    with core.compile_model(accumulator(), "NUMPY", {"STATE": "past.a:present.a"}) as compiled:
        request = compiled.create_infer_request()
        request.query_state()["past.a"][...] = 100
        assert request.infer(X[:1])["y"].tolist() == [202, 204, 206]
        request.start_async(X[:1])
        request.wait()
        assert request.results["y"].tolist() == [204, 208, 212]
        request.infer(X[:1], share_outputs=True)
        assert request.query_state()["past.a"].tolist() == [103, 106, 109]
        assert compiled(X[:1])["y"].tolist() == [2, 4, 6]
        trace = compiled.create_infer_request().trace(X[:1], 1)
        assert trace.slices


def test_a_recorded_request_keeps_states(core: Any, tmp_path: Any) -> None:
    properties = {"STATE": "past.a:present.a", "TRACE": str(tmp_path / "trace.json")}
    with core.compile_model(accumulator(), "NUMPY", properties) as compiled:
        request = compiled.create_infer_request()
        assert [request.infer(X[:1])["y"][0] for _ in range(3)] == [2, 4, 6]


def test_a_model_declares_its_states(core: Any) -> None:
    with core.compile_model(accumulator().with_states("past.*:present.*"), "NUMPY") as compiled:
        copy = pickle.loads(pickle.dumps(compiled))
        assert [copy.create_infer_request().infer(X)["y"].tolist() for _ in range(2)] == [[10, 14, 18]] * 2
        assert list(compiled.report({"x": (5, 3)}).memory) == ["NUMPY"]


def test_states_of_a_model_whose_shapes_depend_on_data(core: Any) -> None:
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "int64", (4,)), g.input("past", "int64", (1,))
    places = g.node(NonZero(), x)
    g.node(Add(), past, g.node(ReduceSum(keepdims=False), places, g.constant([1], "int64")), outputs=["present"])
    g.node(Concat(axis=0), "present", past, outputs=["both"])
    with core.compile_model(g.model(["both", "present"]), "NUMPY", {"STATE": "past:present"}) as compiled:
        request = compiled.create_infer_request()
        given = [0, 1, 1, 0]
        assert [request.infer(np.array(given))["both"].tolist() for _ in range(3)] == [[3, 0], [6, 3], [9, 6]]


def test_a_state_that_another_part_reads_is_left_alone() -> None:
    model = accumulator(late=True).with_states("past.a:present.a")
    names = [node.name for node in model.graph.nodes]
    graph = model.graph.replace(types={**model.graph.types, **dict.fromkeys(model.graph.producers, model.graph.types["past.a"])})
    together = partition(graph, dict.fromkeys(names, "A"))
    assert [part.graph.states for part in together] == [{"past.a": together[0].graph.outputs.index("present.a")}]
    apart = partition(graph, {name: "B" if name == names[-1] else "A" for name in names})
    assert [part.graph.states for part in apart] == [{}, {}]


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ("pest.*:present.*", "no input 'pest"),
        ("past.*:pesent.*", "no output 'pesent.a'"),
        ("past.*", r"'past.\*' names no output; accepted: input:output, several with commas"),
        ("x:y,past.a:y", "the pair past.a:y has an input or output of an earlier pair"),
        ("past.a:present.a,past.a:y", "the pair past.a:y has an input or output of an earlier pair"),
        ("", "'' names no output"),
        (5, "STATE is a int; accepted: text 'input:output'"),
        ({"past.a": "present.a"}, "STATE is a dict; accepted: text 'input:output'"),
    ],
)
def test_unknown_names_are_refused(core: Any, states: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        core.compile_model(accumulator(), "NUMPY", {"STATE": states})


def growing(*shape: Any) -> Model:
    """present = past and x behind each other along axis 1, y their sum."""
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "float32", ("batch", "new", 3)), g.input("past", "float32", shape)
    g.node(Concat(axis=1), past, x, outputs=["present"])
    g.node(ReduceSum(keepdims=False), "present", g.constant([1], "int64"), outputs=["y"])
    return g.model(["present", "y"]).with_states("past:present")


@pytest.mark.parametrize("device", ["NUMPY", *VIRTUAL])
def test_states_of_open_shapes_grow(core: Any, device: str) -> None:
    rng = np.random.default_rng(3)
    with core.compile_model(growing("batch", "length", 3), device) as compiled:
        request = compiled.create_infer_request()
        for batch in (1, 2):
            assert request.query_state()["past"].shape == (0, 0, 3)
            parts = [rng.standard_normal((batch, new, 3)).astype(np.float32) for new in (4, 1, 1, 0, 2)]
            for count, part in enumerate(parts, 1):
                whole = np.concatenate(parts[:count], axis=1)
                np.testing.assert_allclose(request.infer(part)["y"], whole.sum(1), rtol=1e-5)
                np.testing.assert_array_equal(request.query_state()["past"], whole)
            request.query_state()["past"][...] = 1
            np.testing.assert_allclose(request.infer(parts[1])["y"], 8 + parts[1].sum(1), rtol=1e-5)
            request.reset_state()


def test_states_that_keep_an_open_shape_keep_their_array(core: Any) -> None:
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "float32", ("n",)), g.input("past", "float32", ("n",))
    g.node(Add(), past, x, outputs=["present"])
    request = core.compile_model(g.model(["present"]), "NUMPY", {"STATE": "past:present"}).create_infer_request()
    request.infer(np.ones(3, np.float32))
    array = request.query_state()["past"]
    request.infer(np.ones(3, np.float32))
    assert request.query_state()["past"] is array
    assert array.tolist() == [2, 2, 2]


def test_states_have_a_rank_and_a_type(core: Any) -> None:
    g = dovetail.GraphBuilder()
    past = g.input("past", "float32", None)
    g.node(Add(), past, past, outputs=["present"])
    with pytest.raises(UsageError, match="state 'past' of <graph> is float32"):
        core.compile_model(g.model(["present"]), "NUMPY", {"STATE": "past:present"})
    request = core.compile_model(growing("batch", None, 2), "NUMPY").create_infer_request()
    with pytest.raises(dovetail.errors.DovetailError):
        request.infer(np.ones((1, 2, 3), np.float32))


def test_an_output_of_another_shape_continues_no_state(core: Any) -> None:
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "float32", ("n",)), g.input("past", "float32", (2,))
    g.node(Concat(axis=0), past, x, outputs=["present"])
    request = core.compile_model(g.model(["present"]), "NUMPY", {"STATE": "past:present"}).create_infer_request()
    with pytest.raises(InferError, match=r"state 'past' is float32\[2\], the output that continues it float32\[3\]"):
        request.infer(np.ones(1, np.float32))


def test_states_are_no_inputs(core: Any) -> None:
    with core.compile_model(accumulator(), "NUMPY", {"STATE": "past.a:present.a"}) as compiled:
        with pytest.raises(InputError, match=r"no input 'past\.a'"):
            compiled({"x": X, "past.a": np.zeros(3, np.float32)})
        request = compiled.create_infer_request()
        request.close()
        with pytest.raises(UsageError, match="closed"):
            request.query_state()
