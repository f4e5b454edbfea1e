"""Outputs that a reference or a host kernel leaves unwritten are found, whatever the memory held before."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.op import FLOATS, NHWC, HostConfig, HostKernel, KernelRefused, Operator
from dovetail.testing import Case, Outcome
from dovetail.testing.packs import cases_of, reference_checks


class Uniform(HostKernel):
    """Takes every node, plain and with channels last, in place where it may."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        uniform = HostConfig.uniform
        return [uniform(inputs, outputs, in_place=0), uniform(inputs, outputs), uniform(inputs, outputs, NHWC)]

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        np.maximum(inputs[0], 0, out=outputs[0])


class OnlyPositive(Uniform):
    """Leaves the zeros to whoever had the memory before."""

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        np.copyto(outputs[0], inputs[0], where=inputs[0] > 0)


class WrongChannels(Uniform):
    """Forgets that the channels are the last dimension of one of its layouts."""

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        channels = slice(0, 2)
        outputs[0][:, channels] = np.maximum(inputs[0][:, channels], 0)


class Never(Uniform):
    """Refuses every node."""

    def prepare(self, op: Any, config: HostConfig) -> HostConfig:
        raise KernelRefused("out of order")


class Ramp(Operator):
    """y = max(x, 0)."""

    domain = "com.acme"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def reference(self, X: NDArray[Any]) -> Any:
        return np.maximum(X, 0)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((1, 2, 3, 4)).astype(np.float32)
        yield Case("plain", cls(), (x,), (np.where(x > 0, x, 0),))


def found(kernel: HostKernel) -> Any:
    """The result of the check of this kernel."""
    cls = type("Ramp", (Ramp,), {"kernels": (kernel,), "__module__": __name__})
    (check,) = [check for check in reference_checks(cls, cases_of(cls)) if check.name == f"ramp-plain-{kernel.name}"]
    return check.result()


def test_a_kernel_that_writes_everything_passes() -> None:
    assert found(Uniform()).outcome is Outcome.PASSED


@pytest.mark.parametrize(("kernel", "layout"), [(OnlyPositive(), "PLAIN"), (WrongChannels(), "BYXF")])
def test_what_a_kernel_leaves_unwritten(kernel: HostKernel, layout: str) -> None:
    """With the configuration, also one that no plan of the case alone would choose."""
    result = found(kernel)
    assert result.outcome is Outcome.FAILED
    assert result.detail.startswith(f"host kernel {kernel.name!r} in layouts {layout} -> {layout}")
    assert result.detail.endswith("; execute() has to write every element of each output")


def test_a_kernel_that_refuses_the_case() -> None:
    result = found(Never())
    assert (result.outcome, "out of order" in result.detail) == (Outcome.REFUSED, True)


def test_what_a_reference_leaves_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "empty_like", np.zeros_like)  # as new memory often is

    class Partial(Ramp):
        def reference(self, X: NDArray[Any]) -> NDArray[Any]:
            result = np.empty_like(X)
            np.copyto(result, X, where=X > 0)
            return result

    (check,) = reference_checks(Partial, cases_of(Partial))
    result = check.result()
    assert result.outcome is Outcome.FAILED
    assert "reference() leaves elements of np.empty unwritten" in result.detail
