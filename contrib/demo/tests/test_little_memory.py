"""The demo's model where the process may not have the memory for it: an error of our own each time, and it works afterwards."""

import json
import os
import subprocess
import sys

import pytest

import dovetail

PROGRAM = """
import json, resource, sys
import numpy as np
import dovetail
from dovetail_demo import measure

core = dovetail.Core()
model = measure.read_demo_model(core)
images = np.tile(measure.load_digits(8).inputs, (64, 1, 1, 1))
name = next(iter(model.inputs))
device = sys.argv[1]

def run(core, images):
    with core.compile_model(model, device) as compiled:
        return compiled({name: images})[0]

want = run(core, images)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
told, hard = [], resource.getrlimit(resource.RLIMIT_AS)[1]
for point in range(10):
    resource.setrlimit(resource.RLIMIT_AS, (used + (point << 18), hard))
    try:
        run(core, images)
        told.append("runs")
    except dovetail.errors.DovetailError as error:
        told.append(error.code)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    np.testing.assert_array_equal(run(core, images), want)
print(json.dumps(told))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process so")
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_an_error_each_time(device: str) -> None:
    """Drivers of OpenCL and OpenBLAS with threads end the process without memory: docs/explanation/security.md."""
    if device not in dovetail.Core().available_devices:
        pytest.skip(f"{device} is not installed")
    env, command = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}, [sys.executable, "-c", PROGRAM, device]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) == 10
    assert set(told) <= {"runs", dovetail.errors.OutOfMemory.code}
    assert dovetail.errors.OutOfMemory.code in told
