"""Peers that compute values of a model: a device with properties, or onnxruntime."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import dovetail
from dovetail.command import printable
from dovetail.errors import UsageError, raised_by_handler
from dovetail.graph import Model
from dovetail.runtime import CompiledModel, PlanReport

__all__ = ["DovetailPeer", "OnnxRuntimePeer", "Peer", "Values"]

Values = Mapping[str, Any]


class Peer(Protocol):
    """Computes values of a model."""

    @property
    def title(self) -> str:
        """The name for people."""

    def values(self, model: Model, inputs: Values, names: Sequence[str]) -> dict[str, Any]:
        """The values of these names. `model` is the whole model, or a part of it; `inputs` are for all of its inputs."""


@dataclass
class DovetailPeer:
    """A device with properties; `runs` counts the models that it ran, and `latest` is the report of the last one."""

    core: dovetail.Core
    device: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 0
    latest: PlanReport | None = None

    @property
    def title(self) -> str:
        """`ONEDNN`, or `ONEDNN with FUSION=False`."""
        given = ", ".join(f"{name}={value}" for name, value in self.properties.items())
        return f"{self.device} with {given}" if given else self.device

    def values(self, model: Model, inputs: Values, names: Sequence[str]) -> dict[str, Any]:
        """The values, with every node planned as in a model that has these outputs."""
        with self.compiled(replace(model, graph=model.graph.replace(outputs=tuple(names), states={}))) as compiled:
            results = compiled({name: inputs[name] for name in compiled.inputs})
            self.runs += 1
            self.latest = compiled.report()
            return {name: deepcopy(results[index]) for index, name in enumerate(names)}

    @contextmanager
    def compiled(self, model: Model) -> Iterator[CompiledModel]:
        """The model compiled for the device."""
        with self.core.compile_model(model, self.device, self.properties) as compiled:
            yield compiled

    def without(self, passes: Sequence[str]) -> "DovetailPeer":
        """The same with graph passes left out, besides those that the properties leave out."""
        before = [str(self.properties["PASSES"])] if self.properties.get("PASSES") else []
        left_out = ",".join([*before, *(f"-{name}" for name in passes)])
        return DovetailPeer(self.core, self.device, {**self.properties, "PASSES": left_out})


@dataclass
class OnnxRuntimePeer:
    """onnxruntime on its CPU, without its graph optimizations, on the file of the model."""

    path: Path
    title: str = "onnxruntime"

    def values(self, model: Model, inputs: Values, names: Sequence[str]) -> dict[str, Any]:
        """The values, of which each must be one of the file."""
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise UsageError(f"{error.name} is not installed", hint="pip install dovetail-views[onnxruntime]") from error
        proto = onnx.load(self.path)
        known = {name for node in proto.graph.node for name in node.output}
        if unknown := [name for name in names if name not in known and name not in inputs]:
            raise UsageError(f"{self.path} has no value {unknown[0]!r}", hint="take a device to compare with")
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name in known)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        wanted = [name for name in names if name in known]
        try:
            session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
            given = {one.name: inputs[one.name] for one in session.get_inputs()}
            found = dict(zip(wanted, session.run(wanted, given), strict=True))
        except Exception as error:  # its own classes, which have no base but this one
            if raised_by_handler(error):
                raise
            raise UsageError(f"onnxruntime: {printable(str(error), 500)}", hint="take a device to compare with") from error
        return {name: found.get(name, inputs.get(name)) for name in names}
