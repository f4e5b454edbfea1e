"""One session for all conformance tests, and the first device of each type as a parameter."""

import runpy
from pathlib import Path

import pytest

import dovetail

named_devices = runpy.run_path(str(Path(__file__).parent / "_devices.py"))["named_devices"]
CORE = dovetail.Core()


def devices() -> list[str]:
    """The devices to test: one of each type, because a second one costs minutes of kernel compilation.

    `DOVETAIL_TEST_DEVICES=OPENCL.1` names others.
    """
    return named_devices() or sorted({info.type for info in CORE.devices})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices())


@pytest.fixture(scope="session")
def core() -> dovetail.Core:
    return CORE
