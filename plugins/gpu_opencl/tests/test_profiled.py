"""Traced runs: the clock of the device, and every kind of queue."""

import numpy as np

import dovetail
from dovetail import GraphBuilder, Model
from dovetail.device import DeviceInfo
from dovetail_gpu_opencl.profiled import offset_of
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.softmax import Softmax


def test_the_offset_is_in_the_middle_of_the_narrowest_bounds() -> None:
    # The device's clock is 1000 behind; commands were enqueued 1, 5 and 2 after the first stamp of each.
    assert offset_of([11, 25, 42], [1010, 1020, 1040, 1044]) == (max(999, 995, 998) + min(1009, 1015, 1002)) // 2
    assert offset_of([], [5]) == 0


def branches() -> Model:
    g = GraphBuilder()
    x = g.input("x", "float32", (3, 7))
    return g.model([g.node(Add(), g.node(Softmax(axis=0), x, name="left"), g.node(Softmax(), x, name="right"), name="sum")])


def test_traced_runs_in_every_kind_of_queue(queue: str, info: DeviceInfo) -> None:
    x = np.random.default_rng(6).standard_normal((3, 7)).astype(np.float32)
    with dovetail.Core().compile_model(branches(), info.name, {"QUEUE": queue}) as compiled:
        want = compiled(x)[0]
        request = compiled.create_infer_request()
        slices = request.trace(x).slices
        np.testing.assert_array_equal(request.results[0], want)
        nodes = {node.name for node in compiled.report().nodes}
    kernels = [one for one in slices if one.kind == "kernel"]
    assert {one.name for one in kernels} == nodes
    assert all(one.start < one.end for one in kernels)
    assert all(slices[one.caused_by].kind == "enqueue" for one in kernels)
    assert all(slices[one.caused_by].placed == one.placed for one in kernels)
    assert all(one.start >= slices[one.caused_by].start - 1_000_000 for one in kernels)


def test_debugged_buffers_are_recorded_as_a_whole(info: DeviceInfo) -> None:
    x = np.ones((3, 7), np.float32)
    with dovetail.Core().compile_model(branches(), info.name, {"DEBUG_BUFFERS": True}) as compiled:
        slices = compiled.create_infer_request().trace(x).slices
    assert [one.name for one in slices if one.kind == "kernel"] == [f"{info.name}: all of its nodes"] * 2


def test_programs_tell_where_they_come_from(info: DeviceInfo) -> None:
    core = dovetail.Core()
    with dovetail.Trace() as trace:
        core.compile_model(branches(), info.name).close()
        core.compile_model(branches(), info.name).close()
    found = [one.details["cache"] for one in trace.slices if one.kind == "prepare"]
    assert len(found) >= 4
    assert set(found[len(found) // 2 :]) == {"this process"}
