"""The logger `dovetail`, for programs that may never import logging, which takes 4 ms."""

import sys

__all__ = ["info", "warning"]


def info(text: str, *values: object) -> None:
    """Log something that is shown only where a program sets up logging."""
    if "logging" in sys.modules:
        import logging

        logging.getLogger("dovetail").info(text, *values, stacklevel=2)


def warning(text: str, *values: object) -> None:
    """Log a warning."""
    import logging

    logging.getLogger("dovetail").warning(text, *values, stacklevel=2)
