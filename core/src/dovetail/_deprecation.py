"""The warning for public names that go away. docs/explanation/versions.md has the policy."""

import warnings

__all__ = ["deprecated"]


def deprecated(what: str, *, since: str, removed_in: str, instead: str, stacklevel: int = 2) -> None:
    """Warn of the use of `what`, by default at the line that calls the caller of this function.

    `since` is the version that warns first, `removed_in` the one that lacks the name: a test fails from that version on, as
    long as the call is still there. `instead` says what to write in its place.
    """
    text = f"{what} is deprecated since dovetail {since} and goes away in {removed_in}: {instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)
