"""How operations are expressed in ONNX operators: one module for each family, each with a table by operation type."""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from dovetail.frontend import FormatError, printable
from dovetail_frontend_openvino.call import Call, Outputs, Table
from dovetail_frontend_openvino.layers import Layer

__all__ = ["OPERATIONS", "translation"]

_MODULES = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
OPERATIONS: Table = {name: translate for module in _MODULES for name, translate in module.TABLE.items()}
_BY_LOWER_CASE = {name.lower(): translate for name, translate in OPERATIONS.items()}

_REFUSED = {
    "readvalue": "a state that is kept from run to run has no place in a sub-graph",
    "assign": "a state that is kept from run to run has no place in a sub-graph",
}


def translation(layer: Layer) -> Callable[[Call], Outputs] | None:
    """How to express a layer of a standard operator set; None for one that is not known, which may be a pack's or a custom layer.

    Types are compared without case: IR 10 has `ReLU` and `Relu`. Raises `FormatError` for one that is refused for a reason, and
    for one that is not known and has sub-graphs, or whose type is not a name.
    """
    kind = layer.type.lower()
    found = _BY_LOWER_CASE.get(kind)
    if found is not None:
        return found
    if kind in _REFUSED:
        raise FormatError(f"this operation is refused: {_REFUSED[kind]}", hint=_hint(layer))
    if layer.bodies or not layer.type.isidentifier():
        raise FormatError(f"the operation '{printable(layer.type)}' is not known", hint=_hint(layer))
    return None


def _hint(layer: Layer) -> str:
    """A hint: the operations that are known begin like this one, or all of them."""
    near = sorted(name for name in OPERATIONS if name.lower()[:4] == layer.type.lower()[:4])
    return f"known: {', '.join(near or sorted(OPERATIONS))}"
