"""The folder of PyInstaller's hook for this package, found by the entry point in the group `pyinstaller40`."""

import os

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """The folders with files `hook-<module>.py`."""
    return [os.path.dirname(__file__)]
