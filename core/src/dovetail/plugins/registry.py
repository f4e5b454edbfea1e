"""The registry that an op pack fills in its hook: classes, translations, and packages of operator modules."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from dovetail.errors import PluginError
from dovetail.names import stem_of
from dovetail.operators.operator import Operator
from dovetail.operators.packages import classes_in, misplaced_in, stems_in
from dovetail.operators.translation import Translation
from dovetail.plugins.attribution import attributed
from dovetail.plugins.records import PluginRecord, plain_domain

__all__ = ["OpRegistry", "check_operator", "operator_name"]


def check_operator(operator: object) -> type[Operator]:
    """The argument, when it is an operator class.

    Raises `PluginError` for anything else, `OperatorError` for a class that no node could use.
    """
    if not (isinstance(operator, type) and issubclass(operator, Operator)) or operator is Operator:
        hint = "pass a subclass of dovetail.op.Operator, not an instance"
        raise PluginError(f"{operator!r} is not an operator class", hint=hint)
    # Here, and `translated_class` below, because packs of modules need neither.
    from dovetail.operators.definition import check_definition

    check_definition(operator)
    return operator


class OpRegistry:
    """The operators and translations of one pack. `record` identifies the pack."""

    def __init__(self, record: PluginRecord) -> None:
        self.record = record
        self.domain = plain_domain(record.key)
        self._operators: dict[tuple[str, str, int], type[Operator]] = {}
        self._packages: dict[str, Mapping[str, str]] = {}
        self._modules: dict[str, tuple[type[Operator], ...]] = {}

    def add(self, operator: type[Operator] | Translation) -> None:
        """Register an operator class, or a translation to one or to a sub-graph (`Translation.to`).

        Raises `PluginError` when it is neither, when it neither belongs to nor translates the domain of the entry point, and when
        another one with the same name and `since` was registered before it; `OperatorError` for a translation to something else.
        """
        if isinstance(operator, Translation):
            from dovetail.operators.translated import translated_class

            operator = translated_class(operator)
        check_operator(operator)
        self._check_domain(operator)
        known = self._operators.setdefault((plain_domain(operator.domain), operator.op_type, operator.since), operator)
        if known is not operator:
            raise PluginError(
                f"{operator.__qualname__} and {known.__qualname__} are both {operator_name(operator)}",
                hint="give the newer one a later `since`",
            )

    def add_package(self, package: str, families: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
        """Register the modules of a package by their file names, which are the stems of their operators: `conv.py` defines Conv.

        A module is imported when a model has an operator of its stem. It holds the classes of all versions of that operator;
        modules whose names begin with an underscore are skipped. Classes that translate other names are passed to `add`.
        `families` lists the operators of modules that define several, by the names of these modules.
        """
        self._packages[package] = {stem_of(name): module for module, names in families.items() for name in names}

    @property
    def is_empty(self) -> bool:
        """True when nothing was registered."""
        return not self._operators and not self._packages

    @property
    def added(self) -> tuple[type[Operator], ...]:
        """The classes that were registered by themselves, by name and version."""
        return tuple(operator for _, operator in sorted(self._operators.items()))

    def names(self, *, whole: bool) -> tuple[str, ...]:
        """The names of `added`, or of `all`, and those in the domain that they translate."""
        classes = self.all() if whole else self.added
        return tuple(dict.fromkeys(name for cls in classes for name in self._names_of(cls)))

    def _names_of(self, operator: type[Operator]) -> Iterator[str]:
        yield operator_name(operator)
        for translation in operator.translations:
            if plain_domain(translation.domain) == self.domain:
                yield _versioned(self.domain, translation.op_type, operator.since)

    def named(self, op_type: str) -> tuple[type[Operator], ...]:
        """The classes that may define an operator: those that were registered by themselves, and the module of that name.

        Raises `PluginFailed` for a module that cannot be imported or defines operators of another name or domain.
        """
        return (*self.added, *(cls for cls in self._module(stem_of(op_type)) if cls.op_type == op_type))

    def all(self) -> tuple[type[Operator], ...]:
        """Every class, by name and version. Imports all modules; raises as `named`."""
        stems = dict.fromkeys(stem for package, homes in self._packages.items() for stem in (*homes, *stems_in(package)))
        listed = (cls for stem in stems for cls in self._module(stem))
        return tuple(sorted((*self.added, *listed), key=lambda cls: (plain_domain(cls.domain), cls.op_type, cls.since)))

    def misplaced(self) -> tuple[str, ...]:
        """A sentence on each class that no model finds, because its module has another name. Imports all modules."""
        classes = (cls for one in self._packages.items() for cls in misplaced_in(*one) if cls not in self._operators.values())
        return tuple(
            f"{cls.__module__} defines {cls.op_type}, which is looked for in {cls.stem}.py: rename the module, "
            "list the operator in `families` of registry.add_package, or pass the class to registry.add"
            for cls in classes
            if plain_domain(cls.domain) == self.domain
        )

    def _module(self, stem: str) -> tuple[type[Operator], ...]:
        if stem not in self._modules:
            self._modules[stem] = tuple(cls for package in self._packages for cls in self._classes(package, stem))
        return self._modules[stem]

    def _classes(self, package: str, stem: str) -> Iterator[type[Operator]]:
        module = self._packages[package].get(stem, stem)
        with attributed(f"importing {package}.{module} for {self.record.id}", passing=(PluginError,)):
            found = classes_in(package, stem, module)
        for cls in found:
            self._check_domain(cls)
            yield cls

    def _check_domain(self, operator: type[Operator]) -> None:
        if self.domain not in (operator.domain, *(t.domain for t in operator.translations)):
            raise PluginError(
                f"{operator.__qualname__} has domain {operator.domain!r}, but the entry point owns {self.domain!r}",
                hint=f"set domain = {self.domain!r} in the class, translate that domain, or add an entry point for its own",
            )


def operator_name(operator: type[Operator]) -> str:
    """`tim.vx::HSwish-1`: domain, name and first version."""
    return _versioned(operator.domain, operator.op_type, operator.since)


def _versioned(domain: str, op_type: str, since: int) -> str:
    return f"{domain}::{op_type}-{since}" if domain else f"{op_type}-{since}"
