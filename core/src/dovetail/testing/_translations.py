"""The check of a translation: it names attributes and inputs that exist, and its function builds a graph that runs."""

import numpy as np

from dovetail.errors import ShapeError
from dovetail.operators.operator import Operator
from dovetail.operators.translated import is_translated
from dovetail.operators.translation import Translation
from dovetail.testing.check import PASSED, Outcome, Verdict, require

__all__ = ["check_translation"]

_SHAPES = ((2, 4), (1, 3, 4, 4), (4, 4), (5,))


def check_translation(cls: type[Operator], translation: Translation) -> Verdict:
    """Compare the translation with the class that it is listed in or stands for; run a function on made-up inputs.

    Refused are those for which inputs cannot be made up: with an attribute that has no default, or for other shapes.
    """
    named = translation.attributes
    unknown = sorted(set() if callable(named) else set(named.values()) - cls.attributes.keys())
    known = ", ".join(cls.attributes) or "none"
    require(not unknown, f"attributes maps to {', '.join(unknown)}; the attributes are: {known}")
    ports = len(cls.inputs)
    variadic = bool(cls.inputs) and cls.inputs[-1].variadic
    require(variadic or len(translation.inputs or ()) <= ports, f"inputs has {translation.inputs}; there are {ports} inputs")
    if not is_translated(cls) or isinstance(translation.to, type):
        return PASSED
    if required := [name for name, spec in cls.attributes.items() if spec.required]:
        return Verdict(Outcome.REFUSED, f"{', '.join(required)} have no default: test it with a model")
    return _built(cls)


def _built(cls: type[Operator]) -> Verdict:
    """Run the graph that the function builds by references."""
    op, refused = cls.from_attributes({}), ""
    for shape in _SHAPES:
        values = [np.full(shape, 0.5, np.float32) for port in cls.inputs if not port.optional]
        try:
            op.reference(*values, *[None] * (len(cls.inputs) - len(values)))
        except ShapeError as error:  # these inputs are not for it
            refused = refused or error.message
        else:
            return PASSED
    return Verdict(Outcome.REFUSED, refused)
