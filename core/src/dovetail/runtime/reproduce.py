"""One node of a compiled model as a program that runs alone, with the data that it gets in the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import UsageError, did_you_mean
from dovetail.planning.plan import Plan, Step
from dovetail.runtime.compiled_model import CompiledModel

__all__ = ["reproduce"]


def reproduce(compiled: CompiledModel, inputs: Any, node: str, folder: Path) -> Path:
    """Run the model up to a node, and let its device write the node's kernels as a program into `folder`, which is made.

    `node` is a name of the report, or of a node of the model that was merged into one. Returns the path of the program. Raises
    `UsageError` for an unknown node, for a device that writes none, and for a folder that has files in it.
    """
    compiled = compiled.taking(inputs)
    arrays = compiled.reader.read(inputs)
    plan = compiled.plan(tuple(array.shape for array in arrays))
    name, last = _step_of(plan, node)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be used: {error.strerror}") from error
    if used:
        raise UsageError(f"the folder {folder} is not empty", hint="give a new one")
    return last.executable.reproduce(name, _inputs_of(plan, last, arrays), folder)


def _step_of(plan: Plan, node: str) -> tuple[str, Step]:
    reports = [(said, step) for step in plan.steps for said in step.executable.reports]
    for said, step in reports:
        if said.name == node:
            return node, step
    for said, step in reports:
        if node in said.origins:
            return said.name, step
    raise UsageError(f"the plan has no node {node!r}", hint=did_you_mean(node, [said.name for said, _ in reports]))


def _inputs_of(plan: Plan, last: Step, arrays: Sequence[Any]) -> list[Any]:
    """The inputs of a step, computed by the steps before it."""
    slots: list[Any] = [*arrays, *[None] * (plan.slots - len(arrays))]
    for step in plan.steps:
        if step is last:
            break
        request = step.executable.create_request()
        for slot, array in zip(step.writes, request.run([slots[i] for i in step.reads]), strict=True):
            slots[slot] = np.array(array)
        request.close()
    return [slots[i] for i in last.reads]
