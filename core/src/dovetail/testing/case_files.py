"""Cases in files: `<package>/cases/<stem>.py` holds `cases(rng)`, an iterable of `Case`."""

import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np

from dovetail.plugins.discovery import index
from dovetail.plugins.records import STANDARD_DOMAIN
from dovetail.testing.case import Case

__all__ = ["cases_in", "standard_cases"]


def cases_in(package: str, rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Every case in the files of a package, with the stem of its file. Imports them all."""
    folder = importlib.import_module(f"{package}.cases")
    for module in pkgutil.iter_modules(folder.__path__):
        if not module.name.startswith("_"):
            for case in importlib.import_module(f"{folder.__name__}.{module.name}").cases(rng):
                yield module.name, case


def standard_cases(rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Every case of the installed packs that define the standard domain, with the stem of its file."""
    for record in index():
        if (record.kind, record.key) == ("ops", STANDARD_DOMAIN):
            yield from cases_in(record.value, rng)
