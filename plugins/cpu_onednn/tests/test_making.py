"""Primitives made by two threads: each of them once, as by calls from Python, with errors that name the node."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dovetail
from dovetail_cpu_onednn import making, native_thread
from dovetail_cpu_onednn.binding import Unimplemented
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.making import ROOM, Maker, maker
from dovetail_ops_onnx.mat_mul import MatMul

F32 = 3


@pytest.fixture(autouse=True)
def _machine_code():
    if making._native() is None:
        pytest.skip("no machine code for this processor")


def stages(count, size):
    """The stages of as many products, all different."""
    library().plan_threads(2)
    matrices = [[plain(dims, F32) for dims in ((rows + 1, size), (size, size), (rows + 1, size))] for rows in range(count)]
    return [SimpleNamespace(desc=library().describe("matmul", a, b, None, c)) for a, b, c in matrices]


def placement(name="products"):
    node = SimpleNamespace(name=name)
    return SimpleNamespace(node=SimpleNamespace(node=node, name=name), threads=2)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_every_primitive_is_made_once(count):
    found = stages(count, 3)
    with Maker() as helper:
        for stage in [*found, *found]:
            helper.add((placement(), [stage]))
    made = [stage.desc.primitive for stage in found]
    assert len({primitive.pointer.value for primitive in made}) == count
    assert not native_thread._running


def state(task):
    return Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_thread_that_waits_for_long_sleeps_and_goes_on(monkeypatch):
    monkeypatch.setattr(making, "PAUSES", 1)
    found, before = stages(8, 19), set(os.listdir("/proc/self/task"))
    with Maker() as helper:
        for index, stage in enumerate(found):
            if index in (4, 6):
                time.sleep(0.05)
                assert all(row.made for row in helper._rows[:index])
                (task,) = set(os.listdir("/proc/self/task")) - before
                assert state(task) == "S"
            helper.add((placement(), [stage]))
    assert not set(os.listdir("/proc/self/task")) - before


def test_the_second_thread_gets_no_signals():
    mask, found, before = signal.pthread_sigmask(signal.SIG_BLOCK, []), stages(4, 23), set(os.listdir("/proc/self/task"))
    with Maker() as helper:
        helper.add((placement(), found))
        (task,) = set(os.listdir("/proc/self/task")) - before
        (line,) = [one for one in Path(f"/proc/self/task/{task}/status").read_text().splitlines() if one.startswith("SigBlk")]
        assert int(line.split()[1], 16) >> signal.SIGINT - 1 & 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    assert all(stage.desc.primitive is not None for stage in found)


def test_more_primitives_than_a_queue_has_room_for(monkeypatch):
    monkeypatch.setattr(making, "ROOM", 4)
    assert ROOM > 4
    found = stages(11, 5)
    with Maker() as helper:
        helper.add((placement(), found))
    assert all(stage.desc.primitive is not None for stage in found)


def test_without_a_second_thread_the_calling_one_works(monkeypatch):
    refused = []

    def create(*given):
        refused.append(given)
        return 11  # EAGAIN

    found = stages(9, 7)
    monkeypatch.setattr(native_thread, "_functions", lambda: (create, None))
    with Maker() as helper:
        for stage in found:
            helper.add((placement(), [stage]))
    assert len(refused) == 1  # it is not tried again
    assert not native_thread._running
    assert all(stage.desc.primitive is not None for stage in found)


def test_what_cannot_be_made_is_tried_again_and_raised():
    """oneDNN refuses a descriptor that is none."""
    found = stages(5, 11)
    pointer, found[3].desc.pointer = found[3].desc.pointer, making.c_void_p()
    try:
        with pytest.raises(Unimplemented, match="invalid arguments"), Maker() as helper:
            helper.add((placement(), found))
    finally:
        found[3].desc.pointer = pointer
    assert [stage.desc.primitive is None for stage in found] == [False, False, False, True, False]


def test_an_error_of_the_body_leaves_the_rest():
    def broken():
        with Maker() as helper:
            for stage in stages(30, 13):
                helper.add((placement(), [stage]))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken()
    assert not native_thread._running


@pytest.mark.parametrize("place", [0, 1])
def test_an_interrupt_while_the_second_thread_starts_or_is_waited_for(place, monkeypatch):
    functions = [*native_thread._functions()]
    inner = functions[place]

    def interrupted(*given):
        inner(*given)
        raise KeyboardInterrupt

    functions[place] = interrupted
    monkeypatch.setattr(native_thread, "_functions", lambda: functions)
    found = stages(30, 17 + 14 * place)
    with pytest.raises(KeyboardInterrupt), Maker() as helper:
        helper.add((placement(), found))
    assert not native_thread._running  # it was waited for: the memory of its queue goes


def test_plans_are_those_of_calls_from_python(monkeypatch):
    rng, g = np.random.default_rng(0), dovetail.GraphBuilder()
    value = g.input("x", "float32", ("rows", 64))
    for inner, size in ((64, 96), (96, 128), (128, 80), (80, 48)):
        value = g.node(MatMul(), value, g.constant(rng.standard_normal((inner, size), np.float32)))
    model, x, options = g.model([value]), rng.standard_normal((70, 64), np.float32), {"INFERENCE_NUM_THREADS": 2}
    (one,) = dovetail.Core().compile_model(model, "ONEDNN", options)({"x": x}).values()
    monkeypatch.setattr(making, "_native", lambda: None)
    assert not isinstance(maker(2), Maker)
    (other,) = dovetail.Core().compile_model(model, "ONEDNN", options)({"x": x}).values()
    np.testing.assert_array_equal(one, other)


def test_limited_memory_is_looked_at_before_each_primitive(monkeypatch):
    monkeypatch.setattr(making, "lends_any_memory", lambda: False)
    assert not isinstance(maker(2), Maker)
