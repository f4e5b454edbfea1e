"""Requests and executables that are closed: what they held is freed, and they refuse to run."""

import gc
import subprocess
import sys
import threading
import weakref
from ctypes import c_void_p

import numpy as np
import pytest

from dovetail.errors import InferError
from dovetail.graph import GraphBuilder
from dovetail.op import Eltwise, Operator
from dovetail_cpu_onednn.handles import Handle
from dovetail_cpu_onednn.memory import placed
from dovetail_ops_onnx.mat_mul import MatMul


def product(bench, *, op=None):
    """x @ w + a step in Python, so that constants, primitives and references take part."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((7, 5)).astype(np.float32)
    g = GraphBuilder()
    y = g.node(MatMul(), g.input("x", "float32", (4, 7)), g.constant(w), post_ops=[Eltwise("relu")])
    y = y if op is None else g.node(op, y)
    return bench.executable(g.graph([y])), rng.standard_normal((4, 7)).astype(np.float32), w


def test_a_closed_request_refuses_to_run(bench):
    executable, x, w = product(bench)
    request, other = executable.create_request(), executable.create_request()
    request.close()
    request.close()
    with pytest.raises(InferError, match=r"ONEDNN.*closed"):
        request.run([x])
    np.testing.assert_allclose(other.run([x])[0], np.maximum(x.astype(np.float64) @ w, 0), rtol=1e-5, atol=1e-5)


def test_a_closed_executable_closes_its_requests(bench):
    executable, x, _ = product(bench)
    request = executable.create_request()
    infinite = x.copy()
    infinite[0, 0] = np.inf
    request.run([infinite])  # makes the request that runs with references, too
    executable.close()
    executable.close()
    for run in (lambda: request.run([x]), executable.create_request):
        with pytest.raises(InferError, match=r"ONEDNN.*closed"):
            run()


def test_closing_frees_memory(bench):
    executable, x, _ = product(bench)
    request = executable.create_request()
    request.run([x])
    held = [weakref.ref(one) for stages in executable.prepared.values() for one in stages]
    arena = weakref.ref(request._arena.base)
    assert held
    executable.close()
    gc.collect()
    assert arena() is None
    assert executable.prepared == {}
    assert executable.constants == {}
    assert all(ref() is None for ref in held)


class Slow(Operator):
    """A copy that lets the test close the executable in the middle of a run."""

    domain = "test.closing"
    inputs = ("X: T",)
    types = {"T": frozenset()}
    reached, closed = threading.Event(), threading.Event()

    def infer(self, X):
        return X

    def reference(self, X):
        self.reached.set()
        assert self.closed.wait(20)
        return X.copy()


def test_a_run_in_progress_ends_with_what_it_holds(bench):
    executable, x, w = product(bench, op=Slow())
    request, found = executable.create_request(), []
    thread = threading.Thread(target=lambda: found.extend(np.array(y) for y in request.run([x])))
    thread.start()
    assert Slow.reached.wait(20)
    executable.close()
    del executable
    gc.collect()
    Slow.closed.set()
    thread.join(20)
    np.testing.assert_allclose(found[0], np.maximum(x.astype(np.float64) @ w, 0), rtol=1e-5, atol=1e-5)


def test_objects_in_a_cycle_are_destroyed_after_the_finalizers_of_users():
    """Of objects in a cycle Python calls all finalizers first, in any order: one of a user's may run the model once more."""
    calls = []

    class Users:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            calls.append((self.name, self.handle.pointer.value))

    first, handle = Users("first"), Handle(c_void_p(8), lambda pointer: calls.append(("destroyed", pointer.value)))
    last = Users("last")
    first.handle = last.handle = handle
    first.other, last.other = last, first
    del first, handle, last
    gc.collect()
    assert sorted(calls[:2]) == [("first", 8), ("last", 8)]
    assert calls[2:] == [("destroyed", 8)]


def test_an_object_without_cycles_is_destroyed_at_once():
    calls = []
    handle = Handle(c_void_p(8), lambda pointer: calls.append(pointer.value))
    assert not calls
    del handle
    assert calls == [8]


EMPTIED = """
import gc, sys, threading
import numpy as np
import dovetail
from dovetail_ops_onnx import find

g = dovetail.GraphBuilder()
y = g.node(find("MatMul", 17)(), g.input("x", "float32", [4, 4]), g.constant(np.ones((4, 4), np.float32)))
compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
request = compiled.create_infer_request()
request.start_async([np.ones((4, 4), np.float32)])
request.wait()
kept = compiled(np.ones((4, 4), np.float32)), compiled, request
del compiled, request
for name in ("dovetail_cpu_onednn.handles", "dovetail_cpu_onednn.signals", "dovetail.runtime.infer_request"):
    vars(sys.modules[name]).update(dict.fromkeys(vars(sys.modules[name])))
del kept
gc.collect()
"""


def test_objects_that_outlive_their_modules_are_freed_without_a_word() -> None:
    """An interpreter that ends empties modules; where it is embedded, as in frozen programs, models may be freed after that."""
    done = subprocess.run([sys.executable, "-c", EMPTIED], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(placed(b"\xc3") is None, reason="no machine code for this processor")
def test_machine_code_stays_while_the_process_ends() -> None:
    """A thread may run it until then: that of a server, say."""
    code = """
import ctypes, threading, time
from dovetail_cpu_onednn.memory import placed
began = (ctypes.c_char * 1)()
# mov byte [rdi], 1; jmp to itself
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(placed(bytes.fromhex("c60701 ebfe")))
threading.Thread(target=function, args=(ctypes.addressof(began),), daemon=True).start()
while not began[0][0]:
    time.sleep(0.001)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
