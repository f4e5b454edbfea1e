"""`IOBinding`: inputs and outputs of a session that are bound before it runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import raised_by_handler
from dovetail_onnxruntime.decoder import Bound
from dovetail_onnxruntime.values import OrtDevice, OrtValue, array_at

if TYPE_CHECKING:
    from dovetail_onnxruntime.session import Session

__all__ = ["IOBinding"]


class IOBinding:
    """Values for the inputs of a session, and places for its outputs. `Session.run_with_iobinding` runs it."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._targets: dict[str, OrtValue | None] = {}
        self._kept: set[str] = set()
        self._outputs: list[OrtValue] = []
        self._bound = Bound()

    def bind_cpu_input(self, name: str, arr_on_cpu: NDArray[Any]) -> None:
        """Bind an input to an array, which is read when the session runs. Raises `RuntimeError` for an unknown name."""
        self._known(name, [arg.name for arg in self._session.get_inputs()])
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to host memory. Raises `RuntimeError` for memory of another device."""
        _require_host(name, device_type)
        self.bind_cpu_input(name, array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value."""
        self._known(name, [arg.name for arg in self._session.get_inputs()])
        self._inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in memory of its own, or in host memory at `buffer_ptr`, to which it is copied.

        With a `device_type` other than `cpu` its value stays in the memory of the device that runs the session, for later runs.
        """
        device = OrtDevice.make(device_type, device_id)
        self._known(name, [arg.name for arg in self._session.get_outputs()])
        self._kept.discard(name)
        if buffer_ptr is None:
            self._targets[name] = None
            if device.device_type() != "cpu":
                self._kept.add(name)
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        _require_host(name, device_type)
        self._targets[name] = OrtValue(array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of a value."""
        self._known(name, [arg.name for arg in self._session.get_outputs()])
        self._targets[name] = ortvalue
        self._kept.discard(name)

    def synchronize_inputs(self) -> None:
        """Return at once: inputs are in the host's memory."""

    def synchronize_outputs(self) -> None:
        """Return at once: a run returns when its outputs are there."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._outputs)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """As `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays, which later runs do not change."""
        bound = {id(target) for target in self._targets.values()}
        return [np.array(value._on_host()) if id(value) in bound else value._on_host() for value in self._outputs]

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._targets.clear()
        self._kept.clear()
        self._outputs.clear()

    def run(self) -> None:
        """Run the session; for `Session.run_with_iobinding`. Raises `RuntimeError` for a wrong binding, as onnxruntime does."""
        if not self._targets:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        memory = {name: target._value for name, target in self._targets.items() if target is not None}
        self._bound.targets = memory
        try:
            results = self._session._run(list(self._targets), self._inputs, on_device=bool(self._kept), bound=self._bound)
        except Exception as error:
            if raised_by_handler(error):
                raise
            raise RuntimeError(f"Error in execution: {error}") from error
        bound = zip(self._targets.items(), results, strict=True)
        self._outputs = [_stored(name, target, value, name in self._kept) for (name, target), value in bound]

    def _known(self, name: str, names: Sequence[str]) -> None:
        if name not in names:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")


def _require_host(name: str, device_type: str) -> None:
    if OrtDevice.make(device_type).device_type() != "cpu":
        raise RuntimeError(f"'{name}' is bound to memory of {device_type!r}; accepted: host memory (bind arrays or OrtValues)")


def _stored(name: str, target: OrtValue | None, value: Any, kept: bool) -> OrtValue:
    value = value if kept else OrtValue(value)._on_host()
    if target is None:
        return OrtValue(value)
    array = target.numpy()
    if not isinstance(value, np.ndarray) or array.shape != value.shape or array.dtype != value.dtype:
        raise RuntimeError(
            f"Error in execution: output {name!r} is {OrtValue(value).data_type()}{list(np.shape(value))}; "
            f"bound: {target.data_type()}{target.shape()}"
        )
    if not array.flags.writeable:
        raise RuntimeError(
            f"Error in execution: output {name!r} is bound to an array that is read-only; accepted: a writable one"
        )
    if value is not array:
        array[...] = value
    return target
