"""How a model format writes an operator under another name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.errors import OperatorError
from dovetail.graph.graph import AbstractOperator

__all__ = ["Translation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The operator for nodes of `domain` and `op_type` in models. Listed by an operator class: that operator. By itself: `to`.

    `to` is an operator class, or a function that builds a sub-graph; such a translation is registered by the hook
    `dovetail_register_translations` or `Core.add_extension`. The function gets a `GraphBuilder` and the names of the values that
    the node reads, as `Operator.compose` does, and returns an output name, or a tuple of as many as `outputs` says. Its inputs
    with the default `""` may be left out, `*X` takes any number, keyword-only arguments are attributes with an annotation that
    `Operator` accepts::

        def swish(g, X, *, beta: float = 1.0):
            scaled = g.node(Mul(), X, g.constant(beta, g.type_of(X).dtype))
            return g.node(Mul(), X, g.node(Sigmoid(), scaled))

        Translation(domain="com.acme", op_type="Swish2", to=swish, attributes={"alpha": "beta"})

    `attributes` maps their attribute names to ours (others keep their name), or is a function from their attributes to ours.
    `inputs` gives, for each of our inputs, the index of theirs; None takes them as they come. A pack that translates a domain
    has an entry point of that name.
    """

    domain: str
    op_type: str
    to: type[AbstractOperator] | Callable[..., Any] | None = None
    attributes: Mapping[str, str] | Callable[[Mapping[str, Any]], Mapping[str, Any]] = field(default_factory=dict)
    inputs: tuple[int, ...] | None = None
    outputs: int = 1

    def translated_attributes(self, theirs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Our attributes from theirs. Raises `OperatorError` when two of theirs become one of ours."""
        if callable(self.attributes):
            return self.attributes(theirs)
        ours = {self.attributes.get(name, name): value for name, value in theirs.items()}
        if len(ours) != len(theirs):
            raise OperatorError(f"two of the attributes {', '.join(theirs)} have one name after translation: {', '.join(ours)}")
        return ours

    def translated_inputs(self, theirs: Sequence[str]) -> tuple[str, ...]:
        """Our inputs from theirs; `""` where theirs end earlier."""
        if self.inputs is None:
            return tuple(theirs)
        return tuple(theirs[i] if i < len(theirs) else "" for i in self.inputs)
