"""`dovetail plugins test` on a package with plugins of several kinds, one of which cannot be opened as the kit guesses."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

SOURCE = '''
import numpy as np

from dovetail.errors import UsageError
from dovetail.hookspecs import hookimpl
from dovetail.op import FLOATS, Operator
from dovetail.testing import Case
from dovetail.virtual import VirtualDevice

dovetail_api = "1.0"


class Twice(Operator):
    """2 X"""

    domain = "com.several"
    inputs, outputs, types = ("X: T",), ("Y: T",), {"T": FLOATS}

    def reference(self, X):
        return X + X

    @classmethod
    def cases(cls, rng):
        yield Case("by_hand", cls(), (np.float32([1, -2]),), (np.float32([2, -4]),))


class OfThree(VirtualDevice):
    def targets(self, session, arguments, properties):
        if arguments.count(",") != 2:
            raise UsageError(f"OFTHREE:{arguments}", hint="write OFTHREE:A,B,C")
        return session.targets(arguments.partition(",")[0], properties)
'''
OPS = """
from several_classes import Twice, dovetail_api, hookimpl


@hookimpl
def dovetail_register_ops(registry):
    registry.add(Twice)
"""
VIRTUAL = """
from several_classes import OfThree, dovetail_api, hookimpl


@hookimpl
def dovetail_virtual_device():
    return OfThree()
"""
METADATA = "Metadata-Version: 2.1\nName: several\nVersion: 1.0\nRequires-Dist: dovetail>=0.1\n"
ENTRY_POINTS = "[dovetail.ops]\ncom.several = several_ops\n[dovetail.virtual_devices]\nofthree = several_virtual\n"


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The command, where a package with two plugins is installed."""
    info = tmp_path / "site" / "several-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    for name, text in (("several_classes", SOURCE), ("several_ops", OPS), ("several_virtual", VIRTUAL)):
        (info.parent / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(info.parent)
    yield partial(invoke, "plugins", "test")
    for name in ("several_classes", "several_ops", "several_virtual"):
        sys.modules.pop(name, None)


def test_the_other_plugins_of_a_package_are_checked_too(several: Callable[..., Any]) -> None:
    found = several("several", code=1)
    assert "com.several::Twice" in found.stdout
    assert "FAILED open: OFTHREE:NUMPY" in found.stdout
    assert "dovetail plugins test OFTHREE:A,B" in found.stdout


def test_one_that_cannot_be_opened_is_an_error_that_says_what_to_do(several: Callable[..., Any]) -> None:
    found = several("ofthree", code=1)
    assert "Error: OFTHREE:NUMPY" in found.stderr
    assert "name devices that it accepts: dovetail plugins test OFTHREE:A,B. write OFTHREE:A,B,C" in found.stderr
