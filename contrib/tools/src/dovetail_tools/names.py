"""The operators of a name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import UnknownOperator, did_you_mean
from dovetail.plugins import STANDARD_DOMAIN

if TYPE_CHECKING:
    from dovetail.op import Operator
    from dovetail.runtime import Core

__all__ = ["operators_named"]


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
