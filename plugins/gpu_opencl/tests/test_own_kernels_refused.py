"""Kernels that operators have: what is refused, and what errors say."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import CompileError, OperatorError
from dovetail.graph import GraphBuilder
from dovetail.op import KernelRefused, OpenCLKernel, Operator
from dovetail_gpu_opencl.device import OpenCLDevice

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7

GOOD = "__kernel void good(__global const float* x, __global float* y) { y[get_global_id(0)] = x[get_global_id(0)]; }"


def operator_with(**changes: Any) -> Operator:
    fields = {"source": GOOD, "entry": "good", "origin": "good.cl", **changes}

    class Written(Operator):
        """The answer that the test chooses."""

        domain = "test.own"
        kernels = (OpenCLKernel(**fields),)
        by: float = 1.0

        def reference(self, X: Any) -> Any:
            return X

    return Written()


WHERE = r"node 'node' \(test.own::Written\)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"entry": "bad"}, rf"{WHERE}: the kernel 'bad' of good.cl is not in the source\n  kernels there: good"),
        (
            {"source": "__kernel void good(__global const float* x, float y) {}"},
            rf"{WHERE}: the kernel 'good' of good.cl: argument 1 is declared as float; accepted: a pointer .* given output 'y0'",
        ),
        ({"scalars": (("by", "float"),)}, rf"{WHERE}: the kernel 'good' of good.cl takes 2 arguments: .*float32 1.0"),
        (
            {"source": "__kernel void good(__global float* y, __global const float* x) {}"},
            rf"{WHERE}: the kernel 'good' of good.cl: argument 1 is declared as __global const float.*given output 'y0'",
        ),
        (
            {"source": GOOD.replace("y)", "y, int n)"), "scalars": (("by", "float"),)},
            rf"{WHERE}: the kernel 'good' of good.cl: argument 2 is declared as int; accepted: a number of type float",
        ),
        (
            {"source": GOOD.replace("y[", "z[")},
            rf"{WHERE}: the kernel 'good' of good.cl does not compile:[\s\S]*\n    1 __kernel",
        ),
    ],
)
def test_a_kernel_that_does_not_fit_says_why(device: OpenCLDevice, bench: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        bench.compiled(device, operator_with(**changes), [X])


def test_an_image_for_a_buffer_says_why(imaging: OpenCLDevice, bench: Any) -> None:
    said = rf"{WHERE}: the kernel 'good' of good.cl: argument 0 is .*accepted: an image"
    with pytest.raises(CompileError, match=said):
        bench.compiled(imaging, operator_with(images={"X": "image2d_t"}), [X])


def broken(inputs: Any, outputs: Any) -> tuple[int, ...]:
    raise KeyError("width")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"global_size": ("B / (Y - Y)",)}, "divides by zero"),
        ({"global_size": ("X - 9",)}, r"good.cl: the work size is \(-8,\)"),
        ({"global_size": ("7",), "local_size": ("2",)}, "not a multiple of the local size"),
        ({"global_size": broken}, "the operator raised KeyError"),
        ({"scratch": ("X - 1",)}, "a scratch buffer has 0 bytes"),
        ({"layouts": {"Z": "BYXF"}}, r"layouts name the port 'Z'\n  known ports: X, Y"),
        ({"images": {"Z": "image2d_t"}}, "images name the port 'Z'"),
        ({"images": {"X": "image2d_t"}, "layouts": {"X": "ANY"}}, "the image 'X' has the layout ANY"),
        ({"defines": lambda op, inputs, outputs: {"N": inputs[3]}}, "the operator raised IndexError"),
    ],
)
def test_a_mistake_in_a_kernels_data_names_the_node(device: OpenCLDevice, changes: dict[str, Any], said: str) -> None:
    """From the planner as well, whatever it asks first."""
    core = dovetail.Core(config=False)
    g = GraphBuilder()
    y = g.node(operator_with(**changes), g.input("x", "float32", X.shape), name="node")
    with pytest.raises(OperatorError, match=rf"{WHERE} with inputs \(float32\[2, 3, 4\]\): .*{said}"):
        core.compile_model(g.model([y]), device.info.name)


def test_a_kernel_may_refuse_a_node(device: OpenCLDevice, bench: Any) -> None:
    """In any of its functions; another kernel of the class is asked then."""

    def only_large(*given: Any) -> Any:
        raise KernelRefused("24 elements; accepted: 100 or more")

    for changes in ({"defines": only_large}, {"global_size": only_large}, {"scratch": (only_large,)}):
        said = bench.refusal(device, operator_with(**changes), [X])
        assert said == "no configuration of the operator's kernel: 24 elements; accepted: 100 or more"
    op = operator_with(defines=only_large)
    second = OpenCLKernel(source=GOOD.replace("good", "second"), entry="second")
    type(op).kernels = (*type(op).kernels, second)
    executable, (x,) = bench.compiled(device, op, [X])
    assert executable.reports[0].kernel == "second"
    (y,) = executable.create_request().run([x])
    np.testing.assert_array_equal(y, X)


def test_extensions_that_a_kernel_needs(device: OpenCLDevice, bench: Any) -> None:
    said = bench.refusal(device, operator_with(extensions=("cl_acme_dreams",)), [X])
    assert said == "the device lacks a capability: the device lacks the extension cl_acme_dreams"
    name = min(device.caps.extensions)
    executable, _ = bench.compiled(device, operator_with(extensions=(name,)), [X])
    assert executable.reports[0].kernel == "good"


def test_bools_as_defines(device: OpenCLDevice, bench: Any) -> None:
    op = operator_with(
        source=GOOD.replace("= x", "= (FLAG ? 2 : 1) * x"), defines=lambda op, inputs, outputs: {"FLAG": op.by > 0}
    )
    executable, (x,) = bench.compiled(device, op, [X])
    (y,) = executable.create_request().run([x])
    np.testing.assert_array_equal(y, 2 * X)


def test_a_group_larger_than_the_devices_is_refused(device: OpenCLDevice, bench: Any) -> None:
    size = 2 * device.caps.max_work_group_size
    op = operator_with(global_size=(str(size),), local_size=(str(size),))
    assert f"the local size is ({size},); the device takes at most" in bench.refusal(device, op, [X])
    core = dovetail.Core(config=False)
    g = GraphBuilder()
    model = core.compile_model(g.model([g.node(op, g.input("x", "float32", X.shape))]), device.info.name)
    (node,) = model.report().nodes
    assert (node.device, node.kernel) == ("NUMPY", "ref")
    assert "the local size" in str(node.refusals[0][1])


def test_a_layout_that_does_not_fit_is_refused(device: OpenCLDevice, bench: Any) -> None:
    op = operator_with(layouts={"X": "YXFB", "Y": "nChw16c"})
    assert "memory layout: YXFB for 'X', which is float32[2, 3, 4]" in bench.refusal(device, op, [X])
    assert "nChw16c for 'Y'" in bench.refusal(device, op, [np.zeros((1, 2, 3, 4), np.float32)])


class Overriding(Operator):
    """A pack's Relu that computes something else: it must not be run by the device's kernel of that name."""

    op_type = "Relu"

    def reference(self, X: Any) -> Any:
        return X + 1


def test_an_override_without_a_kernel_is_not_taken_for_the_standard_operator(device: OpenCLDevice, bench: Any) -> None:
    assert bench.refusal(device, Overriding(), [X]) == "no kernel for this operator: Relu"
