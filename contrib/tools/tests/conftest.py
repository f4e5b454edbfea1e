"""Fixtures of the tests of commands."""

import pytest

from dovetail.runtime import REFERENCE_DEVICE


@pytest.fixture
def device() -> str:
    """A device that is installed."""
    return REFERENCE_DEVICE
