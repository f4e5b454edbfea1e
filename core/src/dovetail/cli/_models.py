"""Reading the model that a command was given, with extensions and shapes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from dovetail.errors import did_you_mean

if TYPE_CHECKING:
    from dovetail.graph.model import Model
    from dovetail.graph.types import TensorType
    from dovetail.runtime import Core

__all__ = ["closed", "known_input", "make_core", "note_open", "only_input", "reshaped", "shape_text"]


def make_core(extensions: Sequence[str] = ()) -> "Core":
    """A Core that knows the operators in these files."""
    from dovetail.runtime import Core

    core = Core()
    for file in extensions:
        core.add_extension(file)
    return core


def reshaped(model: "Model", shapes: Sequence[str]) -> "Model":
    """The model with the shapes of `--shape` options (`image=8,3,224,224`). Raises `click.UsageError` for malformed ones."""
    return model.reshape(dict(_shape(model, text) for text in shapes))


def closed(model: "Model") -> "Model":
    """The model with every dimension that is still open taken as 1. Raises `click.UsageError` for a tensor of unknown rank."""
    from dovetail.graph.types import TensorType

    tensors = {name: t for name, t in model.inputs.items() if type(t) is TensorType}
    unknown = [name for name, t in tensors.items() if t.shape is None]
    if unknown:
        raise click.UsageError(f"The rank of input {unknown[0]!r} is not known: give its shape with --shape.")
    for name, tensor in tensors.items():
        note_open(name, tensor)
    return model.reshape({name: _closed(t) for name, t in tensors.items() if not t.is_static})


def note_open(name: str, tensor: "TensorType") -> None:
    """Open dimensions of this input are taken as 1: an error about shapes names it."""
    if not tensor.is_static and (context := click.get_current_context(silent=True)) is not None:
        context.find_root().ensure_object(dict).setdefault("open", {})[name] = f"{name} {shape_text(tensor)}"


def shape_text(tensor: "TensorType") -> str:
    """`[N, 3, 224, 224]`."""
    return str(tensor).removeprefix(tensor.dtype.value)


def _closed(tensor: "TensorType") -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 for d in tensor.shape or ())


def _shape(model: "Model", text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, numbers = text.rpartition("=")
    try:
        dims = tuple(int(part) for part in numbers.split(",") if part.strip())
    except ValueError:
        raise click.UsageError(f"--shape {text!r} is not of the form NAME=1,3,224,224.") from None
    return (known_input(model.inputs, name) if equals else only_input(model.inputs, f"--shape {text}")), dims


def only_input(inputs: Mapping[str, "TensorType"], asked: str) -> str:
    """The name of the one input. Raises `click.UsageError` when there are several, or none."""
    if len(inputs) != 1:
        raise click.UsageError(f"{asked}: the model has {len(inputs)} inputs, so name one: {', '.join(inputs)}.")
    return next(iter(inputs))


def known_input(inputs: Mapping[str, "TensorType"], name: str) -> str:
    """The name, when it is an input. Raises `click.UsageError` with a suggestion when it is not."""
    if name not in inputs:
        raise click.UsageError(f"The model has no input {name!r}. {did_you_mean(name, inputs)}")
    return name
