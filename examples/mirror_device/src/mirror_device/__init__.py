"""MIRROR:A,B runs a model on two devices, and raises where their results differ by more than TOLERANCE, by default 0.001."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import InferError, UsageError
from dovetail.hookspecs import hookimpl
from dovetail.virtual import Composite, ExecutableRequest, Model, Part, Session, Targets, VirtualDevice

__all__ = ["Mirror", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"


class Mirror(VirtualDevice):
    """Two devices that run the same requests; the results are those of the first."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        names = [session.info(name.strip()).name for name in arguments.split(",")]
        if len(names) != 2:
            raise UsageError(f"'MIRROR:{arguments}' names {len(names)} devices", hint="write MIRROR:A,B")
        rest = {name: value for name, value in properties.items() if name != "TOLERANCE"}
        return tuple(Targets((name,), rest) for name in names)

    def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Composite:
        found = self.targets(session, arguments, properties)
        parts = [session.compile(model, target.devices[0], target.properties) for target in found]
        return MirrorModel(parts, model.outputs, float(properties.get("TOLERANCE", 1e-3)))


class MirrorModel(Composite):
    """A model compiled for both devices."""

    def __init__(self, parts: Sequence[Part], outputs: Sequence[str], tolerance: float) -> None:
        self._parts, self.outputs, self.tolerance = parts, outputs, tolerance

    @property
    def parts(self) -> Sequence[Part]:
        return self._parts

    def create_request(self) -> "MirrorRequest":
        return MirrorRequest(self)


class MirrorRequest(ExecutableRequest):
    """A request for each device."""

    def __init__(self, model: MirrorModel) -> None:
        self._model = model
        self._requests = [part.create_infer_request() for part in model.parts]

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        first, second = (request.forward(inputs) for request in self._requests)
        for name, one, other in zip(self._model.outputs, first, second, strict=True):
            if not np.allclose(one, other, self._model.tolerance, self._model.tolerance, equal_nan=True):
                devices = " and ".join(part.device for part in self._model.parts)
                raise InferError(f"output {name!r}: {devices} differ by {np.abs(one - other).max():.2g}")
        return first

    def close(self) -> None:
        for request in self._requests:
            request.close()


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Mirror()
