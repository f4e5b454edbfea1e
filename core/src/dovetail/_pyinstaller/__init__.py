"""PyInstaller's hooks: it asks the entry points of its group `pyinstaller40` for folders of them."""

import os

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """The folders with files `hook-<module>.py`."""
    return [os.path.dirname(__file__)]
