"""Cases of the standard operators: `<stem>.py` holds `cases(rng)`, an iterable of `Case`."""

import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case

__all__ = ["standard_cases"]


def standard_cases(rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Every case of every standard operator, with the stem of the file it stands in. Imports them all."""
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            for case in importlib.import_module(f"{__name__}.{module.name}").cases(rng):
                yield module.name, case
