"""Parameters of extensions of the protocol that are not supported."""

from collections.abc import Mapping
from typing import Any

from dovetail_kserve.errors import RequestRefused

__all__ = ["check_parameters"]

_UNSUPPORTED = ("classification", "shared_memory_region", "sequence_id")
"""Those that would change the results, or where they are."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise `RequestRefused` for a parameter of a request, input or output that would be ignored and must not be."""
    for name in _UNSUPPORTED:
        if given.get(name):
            raise RequestRefused(f"the parameter {name} is not supported", hint="send the request without it")
