"""Traces: what they cover, whom they name, and their format."""

import json
import runpy
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Model
from dovetail.device import Executable, Graph, Mark, PartRecorder, clock
from dovetail.runtime import Slice, Trace
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.relu import Relu
from dovetail_views.trace_file import events, save

DEVICES = sorted({info.type: info.name for info in reversed(dovetail.Core().devices)}.values())
FORMAT = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("_trace_format.py"))))
LEAVES = ("kernel", "transfer", "enqueue", "wait")


def feeds(model: Model) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    given = {"count": np.array(3)}
    return {n: given[n] if n in given else rng.standard_normal(t.dims).astype(np.float32) for n, t in model.inputs.items()}


def names_of(model: Model) -> set[str]:
    found, waiting = set(), [model.graph]
    while waiting:
        graph = waiting.pop()
        found |= {node.name for node in graph.nodes}
        waiting += [inner for node in graph.nodes for inner in node.op.subgraphs]
    return found


def on_threads(slices: Sequence[Slice]) -> list[Slice]:
    return [one for one in slices if not (one.device and one.track.startswith(f"{one.device} "))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["chain", "convolution", "looping"])
def test_slices_name_nodes_of_the_model_and_give_the_same_results(device: str, kind: str, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(kind)
    with dovetail.Core().compile_model(model, device) as compiled:
        want = [np.array(value) for value in compiled(feeds(model)).values()]
        asked = compiled.create_infer_request()
        slices = asked.trace(feeds(model), runs=2).slices
        for value, expected in zip(asked.results.values(), want, strict=True):
            np.testing.assert_array_equal(value, expected)
        report = compiled.report()
    runs = [one for one in slices if one.kind == "run"]
    assert len(runs) == 3
    ran = [one for one in slices if one.kind in ("kernel", "host")]
    named = {name for one in ran for name in getattr(one.placed, "origins", ())}
    assert named == {name for node in report.nodes for name in node.origins}
    assert named <= names_of(model)
    assert all(one.placed is not None for one in ran)
    last = runs[-1]
    inside = [one for one in on_threads(slices) if one is not last and last.start <= one.start and one.end <= last.end]
    assert inside
    assert {one.track for one in inside} == {last.track}


@pytest.mark.parametrize("device", DEVICES)
def test_slices_of_a_thread_follow_each_other(device: str, chain: Model) -> None:
    with dovetail.Core().compile_model(chain, device) as compiled:
        slices = compiled.create_infer_request().trace(feeds(chain)).slices
    leaves = [one for one in on_threads(slices) if one.kind in LEAVES]
    assert len(leaves) > 4
    assert all(a.end <= b.start for a, b in pairwise(leaves))


def test_a_trace_has_the_phases_of_what_is_done_in_it(chain: Model) -> None:
    core = dovetail.Core()
    with Trace() as trace, core.compile_model(chain, "NUMPY") as compiled:
        compiled(feeds(chain))
    after = len(trace.slices)
    core.compile_model(chain, "NUMPY").close()
    kinds = Counter(one.kind for one in trace.slices)
    assert len(trace.slices) == after
    assert {"pass", "plan", "compile", "prepare", "bind", "run", "kernel", "transfer"} <= set(kinds)
    assert kinds["pass"] > 10
    passes = {one.name: one.details for one in trace.slices if one.kind == "pass"}
    assert (passes["fuse_post_ops"]["before"], passes["fuse_post_ops"]["after"]) == (4, 2)


def test_requests_made_outside_are_recorded_inside(chain: Model) -> None:
    with dovetail.Core().compile_model(chain, "NUMPY") as compiled:
        compiled(feeds(chain))
        with Trace() as trace:
            compiled(feeds(chain))
        compiled(feeds(chain))
    assert [one.kind for one in trace.slices].count("run") == 1


def test_a_limit_drops_slices_and_counts_them(chain: Model) -> None:
    with Trace(limit=3) as trace, dovetail.Core().compile_model(chain, "NUMPY") as compiled:
        compiled(feeds(chain))
    assert len(trace.slices) == 3
    assert trace.dropped > 10


def test_a_device_that_records_nothing_has_one_slice(chain: Model) -> None:
    core = dovetail.Core()
    info = dovetail.Core().devices[0].__class__("PLAIN.0", "PLAIN", "NPU", "records nothing")
    register_device(core, info, ReferenceDevice)
    with core.compile_model(chain, "PLAIN.0") as compiled:
        slices = compiled.create_infer_request().trace(feeds(chain)).slices
    assert [one.name for one in slices if one.kind == "kernel"] == ["PLAIN.0: all of its nodes"] * 2


def test_an_error_in_a_traced_run_names_the_node(chain: Model) -> None:
    with dovetail.Core().compile_model(chain, "NUMPY") as compiled:
        asked = compiled.create_infer_request()
        with pytest.raises(dovetail.DovetailError, match="x"):
            asked.trace({"x": np.zeros((9, 9), np.float32)})
        assert asked.trace(feeds(chain)).slices


# --- the file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "found"), list(FORMAT.broken()), ids=lambda one: one if isinstance(one, str) else "")
def test_the_check_of_the_format_refuses_what_breaks_a_rule(rule: str, found: list[dict[str, Any]]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        FORMAT.check(found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["chain", "convolution", "looping"])
def test_the_file_obeys_the_format(device: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model: Model = request.getfixturevalue(kind)
    with Trace() as trace, dovetail.Core().compile_model(model, device) as compiled:
        compiled(feeds(model))
        compiled(feeds(model))
    # Peaks so low that no share is rounded to nothing on a busy machine.
    save(trace, tmp_path / "trace.json", {one.device: (1e6, 1e6) for one in trace.slices})
    found = FORMAT.read((tmp_path / "trace.json").read_text())
    FORMAT.check(found)
    kernels = [e for e in found if e.get("cat") == "kernel"]
    assert all(e["args"]["nodes"] and e["args"]["kernel"] and e["args"]["bytes"] > 0 for e in kernels)
    assert all(e["args"]["share of roofline"] > 0 for e in kernels if e["args"]["FLOPs"] and e["dur"])


@pytest.mark.parametrize("device", DEVICES)
def test_slices_cover_the_time_of_a_run(device: str, convolution: Model) -> None:
    with dovetail.Core().compile_model(convolution, device) as compiled:
        found = list(events(compiled.create_infer_request().trace(feeds(convolution))))
    for run in (e for e in found if e.get("cat") == "run"):
        inside = [
            e for e in found
            if e["ph"] == "X" and e["cat"] in (*LEAVES, "overhead") and (e["pid"], e["tid"]) == (run["pid"], run["tid"])
            and run["ts"] <= e["ts"] and e["ts"] + e["dur"] <= run["ts"] + run["dur"] + 1e-3
        ]  # fmt: skip
        assert {"kernel", "enqueue"} & {e["cat"] for e in inside}
        assert sum(e["dur"] for e in inside) == pytest.approx(run["dur"], rel=1e-3)


def test_values_that_change_the_device_have_arrows(chain: Model) -> None:
    core = dovetail.Core()
    info = core.devices[0].__class__("PART.0", "PART", "NPU", "refuses Softmax")
    register_device(core, info, lambda info: _Recording(info, lambda node: node.op.op_type == "Softmax"))
    with core.compile_model(chain, "PART.0") as compiled:
        found = list(events(compiled.create_infer_request().trace(feeds(chain), runs=1)))
    # MatMul, Add and Relu run on the device, then Softmax; once to warm up, and once more.
    assert [e["name"] for e in found if e["ph"] == "s"] == ["value"] * 2
    ends = [e["ts"] for e in found if e["ph"] == "f"]
    assert ends == [e["ts"] for e in found if e.get("cat") == "kernel" and e["args"]["operator"] == "Softmax"]
    FORMAT.check(found)


class _Recording(ReferenceDevice):
    """Records each of its nodes."""

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        executable = super().compile(graph, options)
        request = executable.create_request()
        marks = [Mark("kernel", node.name) for node in graph.nodes]

        def run_traced(inputs: Sequence[Any], recorder: PartRecorder) -> Sequence[Any]:
            start = clock()
            outputs = request.run(inputs)
            recorder.stamps.extend((*range(start, start + len(marks)), clock()))
            recorder.add(marks)
            return outputs

        request.run_traced = run_traced  # type: ignore[method-assign]  # of one object
        executable.create_request = lambda: request  # type: ignore[method-assign]  # of one object
        return executable


def test_memory_in_use_never_exceeds_the_plan(convolution: Model) -> None:
    with dovetail.Core().compile_model(convolution, "NUMPY", {"FUSION": False}) as compiled:
        found = list(events(compiled.create_infer_request().trace(feeds(convolution))))
        peak = compiled.report().memory["NUMPY"]
    used = [e["args"]["bytes"] for e in found if e["ph"] == "C"]
    # Conv reads x and writes its result; Relu may work in place.
    assert max(used) >= 2 * 3 * 7 * 9 * 4 + 2 * 5 * 7 * 9 * 4
    assert max(used) <= peak
    assert used[-1] == 0


def test_the_property_writes_the_file_at_the_end(chain: Model, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    compiled = dovetail.Core().compile_model(chain, "NUMPY", {"TRACE": str(path)})
    compiled(feeds(chain))
    compiled(feeds(chain))
    assert not path.exists()
    compiled.close()
    found = json.loads(path.read_text())["traceEvents"]
    assert [e.get("cat") for e in found].count("run") == 2
    assert "pass" in {e.get("cat") for e in found}


def test_threads_share_a_trace(looping: Model, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with dovetail.Core().compile_model(looping, "NUMPY", {"TRACE": str(path)}) as compiled:
        queue = dovetail.AsyncInferQueue(compiled, jobs=4)
        for _ in range(40):
            queue.start_async(feeds(looping))
        queue.wait_all()
    found = json.loads(path.read_text())["traceEvents"]
    assert [e.get("cat") for e in found].count("run") == 40
    FORMAT.check(found)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_the_option_of_built_in_commands(command: str, invoke: Any, tmp_path: Path, chain: Model) -> None:
    dovetail.Core().write_model(chain, tmp_path / "chain.pzkm")
    given = ("-i", "random") if command == "run" else ("-n", "2")
    result = invoke(command, "chain.pzkm", "-d", "NUMPY", *given, "--json", "--trace", "trace.json", "--no-roofline")
    assert json.loads(result.stdout)["device"] == "NUMPY"
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    FORMAT.check(found)
    assert {"read", "pass", "compile", "run", "kernel"} <= {e.get("cat") for e in found}
    assert "No such option" in invoke(command, "chain.pzkm", "--bogus", code=2).stderr


def test_each_part_of_a_virtual_device_writes_its_own_file(tmp_path: Path) -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", [3]), outputs=["y"])])
    properties = {"TRACE": str(tmp_path / "run.json"), "SCHEDULE_POLICY": "ROUND_ROBIN"}
    with dovetail.Core(config=False).compile_model(model, "MULTI:NUMPY,ONEDNN", properties) as compiled:
        for _ in range(2):
            compiled(np.array([-1, 0, 1], np.float32))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.NUMPY.json", "run.ONEDNN.json"]
    for path in tmp_path.iterdir():
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        assert any(event.get("cat") == "kernel" for event in events), path.name
