"""The operator class for a translation that no class lists: it has the name in models, and its nodes are replaced."""

import inspect
from collections.abc import Callable
from typing import Any

from dovetail.errors import OperatorError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.types import TensorType
from dovetail.operators.decorator import Signature
from dovetail.operators.operator import Operator
from dovetail.operators.translation import Translation

__all__ = ["is_translated", "translated_class", "translation_target"]


def translated_class(translation: Translation) -> type[Operator]:
    """A class with the name in models. Nodes that are read by it have the operator of `translation.to`, or its sub-graph.

    Raises `OperatorError` when `to` is neither an operator class nor a function with the arguments that `Translation` describes.
    """
    to, name = translation.to, f"{translation.domain}::{translation.op_type}"
    if isinstance(to, type) and issubclass(to, Operator) and to is not Operator:
        base, body = to, _as_operator(to)
    elif inspect.isfunction(to):
        base, body = Operator, _as_graph(translation, to)
    else:
        raise OperatorError(
            f"the translation of {name} has to={to!r}",
            hint="accepted: an operator class, or a function that builds a sub-graph; without either, list it in a class",
        )
    given = {"domain": translation.domain, "op_type": translation.op_type, "since": 1, "translations": (translation,)}
    return type(translation.op_type, (base,), {"__module__": to.__module__, "__doc__": to.__doc__, **body, **given})


def is_translated(operator: type[Operator]) -> bool:
    """True for the classes that `translated_class` makes."""
    return any(t.to is not None for t in operator.translations)


def translation_target(operator: type[Operator]) -> str:
    """The operator of nodes that this class reads: itself, as `com.acme::Swish`, or the class or function that replaces it."""
    stands_for = next((t.to for t in operator.translations if t.to is not None), operator)
    if isinstance(stands_for, type) and issubclass(stands_for, Operator):
        return f"{stands_for.domain or 'ai.onnx'}::{stands_for.op_type}"
    return f"{stands_for.__module__}.{stands_for.__qualname__}"


def _as_operator(to: type[Operator]) -> dict[str, Any]:
    # Nodes get the operator itself, so that kernels and passes that look at its class find it.
    return {"from_attributes": classmethod(lambda cls, attributes: to.from_attributes(attributes))}


def _as_graph(translation: Translation, function: Callable[..., Any]) -> dict[str, Any]:
    signature = Signature(function, reserved=dir(Operator), before=1, absent="")

    def compose(self: Operator, g: GraphBuilder, *inputs: str) -> tuple[str, ...]:
        made = signature.call(function, self, inputs, (g,))
        if len(made) != translation.outputs or not all(isinstance(name, str) for name in made):
            raise OperatorError(
                f"{function.__qualname__}, which translates {self.key}, returned {made!r}",
                hint=f"accepted: {translation.outputs} names of values; Translation.outputs says how many",
            )
        return made

    return {
        "__annotations__": signature.annotations,
        **signature.defaults,
        "inputs": tuple(port.partition(":")[0] for port in signature.ports),
        "outputs": tuple(f"output{i}" for i in range(translation.outputs)),
        "compose": compose,
        "infer": _infer,
    }


def _infer(self: Operator, *inputs: TensorType | None) -> tuple[TensorType, ...]:
    from dovetail.evaluate.composition import infer_composition  # here, because listing plugins needs this module and no passes

    return infer_composition(self, inputs)
