"""Names of operators with their domains, and the operators of a name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import UnknownOperator, did_you_mean

if TYPE_CHECKING:
    from dovetail.op import Operator
    from dovetail.runtime import Core

__all__ = ["STANDARD_DOMAIN", "full_name", "operators_named", "plain_domain"]

STANDARD_DOMAIN = "ai.onnx"
"""How the standard domain, whose name in files is empty, is written out."""


def plain_domain(domain: str) -> str:
    """The domain as `Operator.domain` spells it: `""` for the standard domain."""
    return "" if domain == STANDARD_DOMAIN else domain


def full_name(domain: str, op_type: str) -> str:
    """`ai.onnx::Conv`: an operator with its domain written out."""
    return f"{domain or STANDARD_DOMAIN}::{op_type}"


def operators_named(core: "Core", asked: str) -> "Iterable[list[type[Operator]]]":
    """The classes of a name, a name with its domain, or a stem; those of one operator and provider together, oldest first.

    Raises `UnknownOperator` with a suggestion.
    """
    domain, separator, name = asked.rpartition("::")
    everything = core.plugins.operators()
    fitting = [
        o for o in everything if name in (o.op_type, o.stem) and (not separator or (o.domain or STANDARD_DOMAIN) == domain)
    ]
    if not fitting:
        same = [o.op_type for o in everything if separator and (o.domain or STANDARD_DOMAIN) == domain]
        known = {f"{domain}::{one}" for one in same} or {o.op_type for o in everything} | {o.key for o in everything}
        raise UnknownOperator(f"no operator is called {asked!r}", hint=did_you_mean(asked, known))
    groups: dict[tuple[str, str, str], list[type[Operator]]] = {}
    for operator in fitting:
        groups.setdefault((operator.domain, operator.op_type, core.plugins.provider(operator)), []).append(operator)
    return groups.values()
