"""MIRROR: equal results pass, others are named."""

from typing import Any

import numpy as np
import pytest

import dovetail
import mirror_device
from dovetail.device import DeviceInfo
from dovetail.errors import DeviceNotFound, InferError, UsageError
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.relu import Relu

X = np.array([-1, 0.5, 2], np.float32)


class Wrong(ReferenceDevice):
    """Adds 0.01 to every result."""

    def compile(self, graph: Any, options: Any) -> Any:
        made = super().compile(graph, options)
        create = made.create_request

        def create_request() -> Any:
            request = create()
            run = request.run
            request.run = lambda inputs: [found + np.float32(0.01) for found in run(inputs)]  # type: ignore[method-assign]  # type: ignore[method-assign]  # one only
            return request

        made.create_request = create_request  # type: ignore[method-assign]  # of one object
        return made


@pytest.fixture
def core() -> Any:
    made = dovetail.Core(config=False)
    if not any(record.key == "mirror" for record in made.plugins.records()):
        made.plugins.register(mirror_device, name="mirror", kind="virtual_devices", key="mirror")
    for name, kind in (("RIGHT", ReferenceDevice), ("WRONG", Wrong)):
        register_device(made, DeviceInfo(name, name, "CPU", name, -200), kind)
    yield made
    made.close()


def model() -> Any:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Relu(), g.input("x", "float32", ["N"]))])


def test_equal_results_pass(core: Any) -> None:
    compiled = core.compile_model(model(), "MIRROR:NUMPY,RIGHT")
    assert (compiled.device, compiled.devices) == ("NUMPY", ("NUMPY", "RIGHT"))
    np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))


def test_other_results_are_named(core: Any) -> None:
    compiled = core.compile_model(model(), "MIRROR:NUMPY,WRONG")
    with pytest.raises(InferError, match=r"NUMPY and WRONG differ by 0\.01"):
        compiled(X)
    loose = core.compile_model(model(), "MIRROR:NUMPY,WRONG", {"TOLERANCE": 0.02, "FUSION": False})
    np.testing.assert_array_equal(loose(X)[0], np.maximum(X, 0))


def test_names_that_make_no_sense(core: Any) -> None:
    with pytest.raises(UsageError, match="'MIRROR:NUMPY' names 1 devices\n  write MIRROR:A,B"):
        core.compile_model(model(), "MIRROR:NUMPY")
    with pytest.raises(DeviceNotFound, match="NOWHERE"):
        core.compile_model(model(), "MIRROR:NUMPY,NOWHERE")
