"""What op packs register into: staging areas, read out only when the whole registration succeeded."""

from dovetail._stand_in import stand_in
from dovetail.errors import PluginError
from dovetail.op import Operator, Translation
from dovetail.plugins.records import PluginRecord, plain_domain

__all__ = ["OpRegistry", "check_operator", "operator_name"]


def check_operator(operator: object) -> type[Operator]:
    """The argument, when it is an operator class. Raises `PluginError` for anything else."""
    if not (isinstance(operator, type) and issubclass(operator, Operator)) or operator is Operator:
        raise PluginError(
            f"{operator!r} is not an operator class", hint="pass a subclass of dovetail.op.Operator, not an instance"
        )
    return operator


class OpRegistry:
    """The operators and translations of one pack while it registers. `record` says which pack."""

    def __init__(self, record: PluginRecord) -> None:
        self.record = record
        self.domain = plain_domain(record.key)
        self._operators: dict[tuple[str, str, int], type[Operator]] = {}

    def add(self, operator: type[Operator] | Translation) -> None:
        """Register an operator class, or a translation to one or to a sub-graph (`Translation.to`).

        Raises `PluginError` when it is neither, when it neither belongs to nor translates the domain of the entry point, and when
        another one with the same name and `since` was registered before it; `OperatorError` for a translation to something else.
        """
        if isinstance(operator, Translation):
            operator = stand_in(operator)
        check_operator(operator)
        if self.domain not in (operator.domain, *(t.domain for t in operator.translations)):
            raise PluginError(
                f"{operator.__qualname__} has domain {operator.domain!r}, but the entry point owns {self.domain!r}",
                hint=f"set domain = {self.domain!r} in the class, translate that domain, or add an entry point for its own",
            )
        known = self._operators.setdefault((plain_domain(operator.domain), operator.op_type, operator.since), operator)
        if known is not operator:
            raise PluginError(
                f"{operator.__qualname__} and {known.__qualname__} are both {operator_name(operator)}",
                hint="give the newer one a later `since`",
            )

    @property
    def operators(self) -> tuple[type[Operator], ...]:
        """What was registered, by name and version."""
        return tuple(operator for _, operator in sorted(self._operators.items()))


def operator_name(operator: type[Operator]) -> str:
    """`tim.vx::HSwish-1`: domain, name and first version."""
    domain = f"{operator.domain}::" if operator.domain else ""
    return f"{domain}{operator.op_type}-{operator.since}"
