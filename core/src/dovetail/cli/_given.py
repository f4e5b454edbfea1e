"""Values for the inputs of a model, for commands of plugins."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.graph.model import Model

__all__ = ["given_inputs"]


def given_inputs(model: "Model", given: Sequence[str] = (), seed: int = 0) -> dict[str, Any]:
    """Values for all inputs from options `-i`, random ones without any. Raises `click.UsageError` and `InputError`."""
    from dovetail.cli._inputs import RANDOM, read_inputs  # NumPy, which `dovetail --help` can do without

    return read_inputs(model.inputs, given or ([RANDOM] if model.inputs else []), seed, model.overridable)
