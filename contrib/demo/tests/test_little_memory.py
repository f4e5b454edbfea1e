"""The demo's model where the process may not have the memory for it: an error of our own each time, and it works afterwards."""

import json
import os
import subprocess
import sys

import pytest

import dovetail

PROGRAM = """
import gc, json, resource, sys, time
import numpy as np
import dovetail
from dovetail_demo import measure

core = dovetail.Core()
model = measure.read_demo_model(core)
few = measure.load_digits(8).inputs
many = np.tile(few, (640, 1, 1, 1))
name = next(iter(model.inputs))
device = sys.argv[1]

def run(images):
    with core.compile_model(model, device) as compiled:
        return compiled({name: images})[0]

want = run(few)
np.testing.assert_allclose(run(many)[-8:], want, rtol=1e-4, atol=1e-6)  # and all kernels are compiled
gc.collect()

def taken():
    time.sleep(0.03)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

used = min(taken() for _ in range(20))  # threads of a driver may free memory later
outcomes, hard = [], resource.getrlimit(resource.RLIMIT_AS)[1]
for point in range(10):
    resource.setrlimit(resource.RLIMIT_AS, (used + (point - 4 << 23), hard))
    try:
        run(many)
        outcomes.append("runs")
    except dovetail.errors.DovetailError as error:
        outcomes.append(error.code)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    np.testing.assert_array_equal(run(few), want)
print(json.dumps(outcomes))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process so")
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_an_error_each_time(device: str) -> None:
    """Ten limits, 8 MiB apart; the intermediate values take 40, more than the allocator of the C library keeps when it is freed.
    The first limits are below what is in use, because a driver may free memory later still.

    OpenBLAS with threads ends the process without memory, and so does PoCL where it compiles: docs/explanation/security.md.
    """
    found = [name for name in dovetail.Core().available_devices if name.split(".")[0] == device]
    if not found:
        pytest.skip(f"{device} is not installed")
    # A fixed threshold: by itself the C library of GNU raises it, and keeps tens of megabytes of freed arrays for the next run.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", PROGRAM, found[0]]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    # Any may find the memory of the run before it, which the allocator still has, or a thread of a driver frees meanwhile.
    assert outcomes.count(dovetail.errors.OutOfMemory.code) >= 2
    assert set(outcomes) <= {"runs", dovetail.errors.OutOfMemory.code}
    assert len(outcomes) == 10
