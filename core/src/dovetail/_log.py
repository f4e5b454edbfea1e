"""The logger `dovetail`, for programs that may never import logging, which takes 4 ms."""

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["info", "warning"]


def info(text: str, *values: object) -> None:
    """Log something that is shown only where a program sets up logging."""
    if "logging" in sys.modules:
        _logger().info(text, *values, stacklevel=2)


def warning(text: str, *values: object) -> None:
    """Log a warning."""
    _logger().warning(text, *values, stacklevel=2)


@functools.cache
def _logger() -> "Logger":
    """Asked for once: before Python 3.13, an exception of a signal's handler in `getLogger` leaves its lock taken for ever."""
    import logging

    return logging.getLogger("dovetail")
