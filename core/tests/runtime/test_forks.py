"""Processes that are forked while threads of their parent run and plan: they wait for none of these threads."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

BEGIN = """
import os, signal, sys, threading
import numpy as np
import dovetail
from dovetail.op import GraphBuilder, Operator

begun, go_on = threading.Event(), threading.Event()


class Waits(Operator):
    domain = "test"

    def reference(self, X):
        if os.getpid() == PARENT:
            begun.set()
            assert go_on.wait(100)
        return X


PARENT = os.getpid()
go_on.set()

def model():
    g = GraphBuilder()
    return g.model([g.node(Waits(), g.input("x", "float32", ["N", 2]))])


core = dovetail.Core(config=False)
compiled = core.compile_model(model(), sys.argv[1])
x = np.ones((1, 2), np.float32)
request, queue = compiled.create_infer_request(), dovetail.AsyncInferQueue(compiled, 1)
compiled(x)
begun.clear()
go_on.clear()
"""

END = """
if not (child := os.fork()):
    signal.alarm(60)  # a child that waits ends by a signal
    status = 1
    try:
        in_child()
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(status)
go_on.set()
assert os.waitpid(child, 0)[1] == 0
in_parent()
"""

RUNS = """
thread = threading.Thread(target=compiled, args=(x,))
thread.start()
assert begun.wait(100)

def in_child():
    assert (compiled(x)[0] == x).all()
    assert (core.compile_model(model(), sys.argv[1])(x)[0] == x).all()

def in_parent():
    thread.join()
    assert (compiled(x)[0] == x).all()
"""

BACKGROUND = """
request.start_async(x)
assert begun.wait(100)

def in_child():
    try:
        request.wait()
    except dovetail.errors.InferError as error:
        assert "before this process was forked" in str(error) and "start it again" in str(error), error
    else:
        raise AssertionError
    request.start_async(x)
    request.wait()
    assert (request.results[0] == x).all()

def in_parent():
    request.wait()
    assert (request.results[0] == x).all()
"""

ENDED = """
go_on.set()
request.start_async(x)
request.wait()

def in_child():
    assert request.wait()
    assert (request.results[0] == x).all()

in_parent = in_child
"""

QUEUE = """
queue.start_async(x)
assert begun.wait(100)

def in_child():
    queue.start_async(x)
    queue.wait_all()
    assert [(one[0] == x).all() for one in queue.map([x, x, x])] == [True] * 3

def in_parent():
    queue.wait_all()
    assert [(one[0] == x).all() for one in queue.map([x, x, x])] == [True] * 3
"""

PLANS = """
from dovetail.planning.planner import Prepared

make = Prepared._done.func

def slow(self):
    if os.getpid() == PARENT:
        begun.set()
        assert go_on.wait(100)
    return make(self)

Prepared._done.func = slow
thread = threading.Thread(target=lambda: core.compile_model(model(), sys.argv[1])(x))
thread.start()
assert begun.wait(100)

def in_child():
    assert (core.compile_model(model(), sys.argv[1])(x)[0] == x).all()

in_parent = thread.join
"""


@pytest.mark.parametrize("device", ["NUMPY", "MULTI:NUMPY", "BATCH:NUMPY(4)", "HETERO:NUMPY"])
@pytest.mark.parametrize("what", [RUNS, BACKGROUND, ENDED, QUEUE, PLANS], ids=["runs", "background", "ended", "queue", "plans"])
def test_a_process_forked_meanwhile_waits_for_no_thread_of_its_parent(what: str, device: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGIN + what + END, device]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
