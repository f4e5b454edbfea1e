"""One session for all conformance tests, and every device it finds as a parameter."""

import os

import pytest

import dovetail

CORE = dovetail.Core()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        # DOVETAIL_TEST_DEVICES=OPENCL.0 keeps a run to one device, for work on it.
        chosen = os.environ.get("DOVETAIL_TEST_DEVICES", "")
        metafunc.parametrize("device", chosen.split(",") if chosen else CORE.available_devices)


@pytest.fixture(scope="session")
def core() -> dovetail.Core:
    return CORE
