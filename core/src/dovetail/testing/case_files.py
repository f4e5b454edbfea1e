"""Cases in files: `<package>/cases/<stem>.py` holds `cases(rng)`, an iterable of `Case`.

Those that need no file are functions in the mapping `CASES` of `<package>/cases/__init__.py`, by stem.
"""

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.operators.operator import Operator
from dovetail.plugins.discovery import index
from dovetail.plugins.records import STANDARD_DOMAIN
from dovetail.testing.case import Case
from dovetail.testing.random_graphs import Kind

__all__ = ["cases_of", "moved_to", "random_kinds", "replaced_cases", "standard_cases"]


def _cases_in(package: str, rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Every case of a package, with its stem. Imports all files."""
    folder = importlib.import_module(f"{package}.cases")
    files = {module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_")}
    for stem in sorted({*files, *getattr(folder, "CASES", ())}):
        for case in _cases_of_stem(package, stem, rng) or ():
            yield stem, case


def _cases_of_stem(package: str, stem: str, rng: np.random.Generator) -> Iterable[Case] | None:
    """The cases of one operator; None where the package has none."""
    if not find_spec(f"{package}.cases"):
        return None
    make = getattr(importlib.import_module(f"{package}.cases"), "CASES", {}).get(stem)
    if make is None and find_spec(f"{package}.cases.{stem}"):
        make = importlib.import_module(f"{package}.cases.{stem}").cases
    found: Iterable[Case] | None = None if make is None else make(rng)
    return found


def cases_of(stem: str, rng: np.random.Generator) -> Iterator[Case]:
    """The cases of one standard operator. Raises `UsageError` when no installed pack has any for this stem."""
    for package in _standard_packs():
        if (found := _cases_of_stem(package, stem, rng)) is not None:
            yield from found
            return
    raise UsageError(f"no installed pack of the standard operators has cases for {stem!r}")


def replaced_cases(cls: type[Operator], rng: np.random.Generator) -> Iterator[Case]:
    """For a class that replaces another package's operator: the cases in that package's files, with `cls` in its place.

    The operator is one that the class is derived from, or the standard one of its name and version.
    """
    name = cls.domain, cls.op_type
    replaced = [base for base in cls.__mro__[1:] if issubclass(base, Operator) and (base.domain, base.op_type) == name]
    packages: list[Any] = [*(base.package for base in replaced), *(_standard_packs() if not cls.domain else [])]
    for package in dict.fromkeys(packages):
        for case in (package != cls.package and _cases_of_stem(package, cls.stem, rng)) or ():
            own = type(case.op)
            if own in replaced or (not replaced and (own.op_type, own.since) == (cls.op_type, cls.since)):
                yield moved_to(cls, case)


def moved_to(cls: type[Operator], case: Case) -> Case:
    """The case for another class of the operator, with the same attributes."""
    return dataclasses.replace(case, op=cls(**{name: getattr(case.op, name) for name in type(case.op).attributes}))


def standard_cases(seed: int) -> Sequence[tuple[str, Case]]:
    """Every case of the installed packs that define the standard domain, with the stem of its file.

    They are made once in a process, because each device has a kit of them; nobody can write into their arrays.
    """
    return _made_cases(seed, tuple(_standard_packs()))


@functools.cache
def _made_cases(seed: int, packages: Sequence[str]) -> Sequence[tuple[str, Case]]:
    rng = np.random.default_rng(seed)
    found = tuple(one for package in packages for one in _cases_in(package, rng))
    for value in (value for _, case in found for value in (*case.inputs, *case.expected)):
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return found


def random_kinds() -> Mapping[str, Kind]:
    """Operator name -> its nodes in random graphs: `KINDS` in `<package>/cases/__init__.py` of the pack of standard operators.

    Raises `UsageError` when no installed pack has it.
    """
    for package in _standard_packs():
        found: Mapping[str, Kind] | None = getattr(importlib.import_module(f"{package}.cases"), "KINDS", None)
        if found:
            return found
    raise UsageError("no installed pack of the standard operators has KINDS for random graphs")


def _standard_packs() -> list[str]:
    return [record.value for record in index() if (record.kind, record.key) == ("ops", STANDARD_DOMAIN)]
