"""A device that is lost has an error of its own; reset, it is opened anew and computes."""

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import dovetail
from dovetail.errors import DeviceError, DeviceLost, OutOfMemory
from dovetail.planning.options import CompileOptions
from dovetail_gpu_opencl import request
from dovetail_gpu_opencl.failures import as_dovetail
from dovetail_ops_onnx.relu import Relu


def failure(code: int) -> cl.Error:
    return cl.RuntimeError(cl._cl._ErrorRecord("made to fail", code, "clFinish"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (cl.status_code.DEVICE_NOT_AVAILABLE, DeviceLost),
        (cl.status_code.INVALID_COMMAND_QUEUE, DeviceLost),
        (-9999, DeviceLost),
        (cl.status_code.OUT_OF_RESOURCES, OutOfMemory),
        (cl.status_code.INVALID_VALUE, DeviceError),
    ],
)
def test_codes_of_drivers(code: int, kind: type[Exception]) -> None:
    found = as_dovetail(failure(code), "waiting for OPENCL.0")
    assert type(found) is kind
    assert "waiting for OPENCL.0" in found.message


def test_a_device_that_was_lost_is_reset_and_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    core = dovetail.Core(config=False)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", [3]))])
    x = np.array([-1, 0, 2], np.float32)
    compiled = core.compile_model(model, "OPENCL.0")
    np.testing.assert_array_equal(compiled(x)[0], [0, 0, 2])
    before = core._session._target("OPENCL.0", CompileOptions()).device

    def lost(*_: Any, **__: Any) -> None:
        raise failure(-9999)

    with monkeypatch.context() as patched:
        patched.setattr(request.InOrderRequest, "_enqueue_all", lost)
        with pytest.raises(DeviceLost, match=r"the device was lost") as caught:
            compiled(x)
    assert "core.reset_device" in caught.value.hint
    core.reset_device("opencl")
    again = core.compile_model(model, "OPENCL.0")
    np.testing.assert_array_equal(again(x)[0], [0, 0, 2])
    after = core._session._target("OPENCL.0", CompileOptions()).device
    assert after._context is not before._context
    core.close()
