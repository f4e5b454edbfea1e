"""One session for all conformance tests, and the first device of each type as a parameter."""

import os

import pytest

import dovetail

CORE = dovetail.Core()


def devices() -> list[str]:
    """The devices to test: one of each type, because a second one costs minutes of kernel compilation.

    `DOVETAIL_TEST_DEVICES=OPENCL.1` names others.
    """
    chosen = os.environ.get("DOVETAIL_TEST_DEVICES", "")
    return chosen.split(",") if chosen else sorted({info.type for info in CORE.devices})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices())


@pytest.fixture(scope="session")
def core() -> dovetail.Core:
    return CORE
