"""Cases in files: `<package>/cases/<stem>.py` holds `cases(rng)`, an iterable of `Case`."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator, Mapping

import numpy as np

from dovetail.errors import UsageError
from dovetail.plugins.discovery import index
from dovetail.plugins.records import STANDARD_DOMAIN
from dovetail.testing.case import Case
from dovetail.testing.random_graphs import Kind

__all__ = ["cases_in", "cases_of", "random_kinds", "standard_cases"]


def cases_in(package: str, rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Every case in the files of a package, with the stem of its file. Imports them all."""
    folder = importlib.import_module(f"{package}.cases")
    for module in pkgutil.iter_modules(folder.__path__):
        if not module.name.startswith("_"):
            for case in importlib.import_module(f"{folder.__name__}.{module.name}").cases(rng):
                yield module.name, case


def cases_of(stem: str, rng: np.random.Generator) -> Iterator[Case]:
    """The cases of one standard operator. Raises `UsageError` when no installed pack has a file for this stem."""
    for package in _standard_packs():
        if importlib.util.find_spec(f"{package}.cases.{stem}"):
            yield from importlib.import_module(f"{package}.cases.{stem}").cases(rng)
            return
    raise UsageError(f"no installed pack of the standard operators has cases for {stem!r}")


def standard_cases(rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Every case of the installed packs that define the standard domain, with the stem of its file."""
    for package in _standard_packs():
        yield from cases_in(package, rng)


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
