"""How a model format writes an operator under another name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import OperatorError

__all__ = ["Translation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Another name of an operator in models: nodes of `domain` and `op_type` become the operator whose class lists this.

    `attributes` maps their attribute names to ours (others keep their name), or is a function from their attributes to ours.
    `inputs` gives, for each of our inputs, the index of theirs; None takes them as they come. An operator that stands for
    several of ours is a class with `compose`. A pack that translates a domain has an entry point of that name beside its own.
    """

    domain: str
    op_type: str
    attributes: Mapping[str, str] | Callable[[Mapping[str, Any]], Mapping[str, Any]] = field(default_factory=dict)
    inputs: tuple[int, ...] | None = None

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
