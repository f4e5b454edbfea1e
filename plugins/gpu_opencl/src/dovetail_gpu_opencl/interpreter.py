"""The interpreter that other processes run."""

import sys

__all__ = ["command"]


def command(*arguments: str) -> list[str] | None:
    """The command line of Python with these arguments; None in a frozen program, whose executable is the program itself."""
    return [sys.executable, "-P", *arguments] if sys.executable and not hasattr(sys, "frozen") else None
