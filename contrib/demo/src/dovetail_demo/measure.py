"""Measurements of `dovetail demo`: the held-back digits on one device after another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.command import Latency, measure, timed
from dovetail.errors import DovetailError, raised_by_handler
from dovetail.graph import Model
from dovetail.runtime import REFERENCE_DEVICE, CompiledModel, Core, NodePlacement

__all__ = ["LIMIT", "CustomNode", "DeviceResult", "Digits", "custom_nodes", "load_digits", "read_demo_model", "run_devices"]

LIMIT = 1e-4
"""The largest difference of a probability, from the reference device or from the training run, that counts as agreement."""

_WARM_UP = 10
_BATCH_SECONDS = 1.0
_WHITE = np.float32(16)

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Digits:
    """Pictures (uint8 [M, 8, 8], 0 to 16), their labels [M], and what the training framework computed (float32 [M, 10])."""

    images: Array
    labels: Array
    probabilities: Array

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def inputs(self) -> Array:
        """The pictures as the network takes them: float32 [M, 1, 8, 8], 0 to 1."""
        return self.images[:, np.newaxis].astype(np.float32) / _WHITE


@dataclass(frozen=True)
class CustomNode:
    """Who ran one node of a domain that is not the standard one; `merged_into` is the operator whose kernel took it in."""

    node: str
    operator: str
    device: str
    kernel: str
    provider: str
    merged_into: str = ""


@dataclass(frozen=True, eq=False)
class DeviceResult:
    """One device on all pictures. With an `error` the other figures may be missing.

    `difference` is the largest from the reference device (None when that could not run), `training_difference` from the
    training run.
    """

    device: str
    error: str = ""
    probabilities: Array | None = None
    correct: int = 0
    difference: float | None = None
    training_difference: float | None = None
    latency: Latency | None = None
    images_per_second: float = 0.0
    custom_nodes: tuple[CustomNode, ...] = field(default=())

    @property
    def predictions(self) -> Array | None:
        """The digit that was read, for each picture."""
        return None if self.probabilities is None else self.probabilities.argmax(axis=1)


def load_digits(limit: int | None = None) -> Digits:
    """The held-back pictures, the first `limit` of them."""
    data = files("dovetail_demo").joinpath("data", "digits_test.npz")
    with data.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return Digits(*(arrays[name][:limit] for name in ("images", "labels", "probabilities")))


def read_demo_model(core: Core) -> Model:
    """The network. Raises `DovetailError` naming the domain when no op pack for one of its nodes is installed."""
    with as_file(files("dovetail_demo").joinpath("data", "digits.onnx")) as path:
        model = core.read_model(path)
    installed = {record.key for record in core.plugins.records() if record.kind in ("ops", "overrides")}
    for domain in dict.fromkeys(node.op.domain for node in custom_nodes(model)):
        if domain not in installed:
            raise DovetailError(
                f"the demo's network has nodes of the operator domain {domain!r}, and no installed op pack provides it",
                hint=f"pip install dovetail-ops-{domain.replace('.', '-').replace('_', '-')}",
            )
    return model


def custom_nodes(model: Model) -> list[Any]:
    """The nodes outside the standard domain: op packs define their operators."""
    return [node for node in model.graph.nodes if node.op.domain not in ("", "ai.onnx")]


def run_devices(
    core: Core, model: Model, digits: Digits, devices: Sequence[str], advance: Callable[[float], None]
) -> list[DeviceResult]:
    """Results in the order of `devices`; the reference device runs first. `advance` gets 1 for each device."""
    order = sorted(devices, key=lambda name: name != REFERENCE_DEVICE)
    results: dict[str, DeviceResult] = {}
    for name in order:
        reference = results.get(REFERENCE_DEVICE)
        try:
            results[name] = _run(core, model, digits, name, None if reference is None else reference.probabilities, advance)
        except Exception as error:
            if raised_by_handler(error):
                raise
            # Whatever a device plugin raises concerns that device alone: the others go on, and the table says why it failed.
            results[name] = DeviceResult(name, error=_error_text(error))
    return [results[name] for name in devices]


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"


def _run(
    core: Core, model: Model, digits: Digits, device: str, reference: Array | None, advance: Callable[[float], None]
) -> DeviceResult:
    inputs = digits.inputs
    with core.compile_model(model, device) as compiled:
        (name,) = compiled.inputs
        probabilities = np.array(compiled({name: inputs})[0])
        placements = compiled.report().nodes
        batches = Latency.of(measure(lambda: compiled({name: inputs}), seconds=_BATCH_SECONDS, advance=lambda s: advance(s / 2)))
        latency = _latency(compiled, name, inputs, advance)
    if device == REFERENCE_DEVICE:
        reference = probabilities
    difference = None if reference is None else _difference(probabilities, reference)
    training_difference = _difference(probabilities, digits.probabilities)
    return DeviceResult(
        device,
        error=_disagreement(difference, training_difference),
        probabilities=probabilities,
        correct=int(np.count_nonzero(probabilities.argmax(axis=1) == digits.labels)),
        difference=difference,
        training_difference=training_difference,
        latency=latency,
        images_per_second=len(digits) / batches.p50,
        custom_nodes=tuple(_who_ran(node, placements) for node in custom_nodes(model)),
    )


def _latency(compiled: CompiledModel, name: str, inputs: Array, advance: Callable[[float], None]) -> Latency:
    """Of single pictures, one after another, after some runs to warm up."""
    singles = [inputs[i : i + 1] for i in range(len(inputs))]
    for i in range(_WARM_UP):
        compiled({name: singles[i % len(singles)]})
    samples = []
    for single in singles:
        samples.append(timed(partial(compiled, {name: single}))[0])
        advance(0.5 / len(singles))
    return Latency.of(samples)


def _difference(got: Array, expected: Array) -> float:
    """The largest; NaN counts as infinite."""
    return float(np.nan_to_num(np.abs(got.astype(np.float64) - expected), nan=np.inf).max(initial=0.0))


def _disagreement(difference: float | None, training_difference: float) -> str:
    for value, other in ((difference, REFERENCE_DEVICE), (training_difference, "the training run")):
        if value is not None and value > LIMIT:
            return f"its probabilities differ from those of {other} by {value:.2g}; at most {LIMIT:g} is accepted"
    return ""


def _who_ran(node: Any, placements: Sequence[NodePlacement]) -> CustomNode:
    for placed in placements:
        if node.name in placed.origins or node.name == placed.name:
            merged = "" if placed.op == node.op.key else placed.op
            return CustomNode(node.name, node.op.key, placed.device, placed.kernel, placed.provider, merged)
    return CustomNode(node.name, node.op.key, "", "folded while planning", "")
