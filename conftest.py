"""What all tests of this repository have in common."""

import os


def pytest_configure() -> None:
    """Compiled kernels are not kept: making binaries costs PoCL as much as compiling, and the user's cache stays as it is.

    Tests of the caches delete the variable. Drivers keep caches of their own all the same.
    """
    os.environ.setdefault("DOVETAIL_CACHE_LIMIT", "0")
