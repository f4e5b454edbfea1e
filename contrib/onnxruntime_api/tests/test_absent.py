"""Every public symbol of the onnxruntime that is installed is here, or in the list of what is not."""

import inspect

import onnxruntime
import pytest
from packaging.version import Version

import dovetail_onnxruntime
from dovetail_onnxruntime.absent import ABSENT
from dovetail_onnxruntime.capi import onnxruntime_pybind11_state as state

INTERNAL = {"import_capi_exception", "package_name", "version", "cuda_version"}
"""Names that onnxruntime's `__init__` happens to have."""
NEWEST = "1.32"
"""The newest onnxruntime whose symbols were compared: a later one may have more."""
IS_NEWER = Version(onnxruntime.__version__).release[:2] > Version(NEWEST).release


def test_symbols() -> None:
    # Modules are left out: sub-packages appear when something imports them.
    found = {name for name in dir(onnxruntime) if not inspect.ismodule(getattr(onnxruntime, name)) and not name.startswith("_")}
    theirs = found - INTERNAL
    missing = {name for name in theirs if not hasattr(dovetail_onnxruntime, name)}
    listed = {name for name in ABSENT if "." not in name and name in theirs}
    assert listed <= missing
    if not IS_NEWER:
        assert missing == listed


@pytest.mark.skipif(IS_NEWER, reason=f"onnxruntime is newer than {NEWEST}, and may have more members")
@pytest.mark.parametrize(
    "name", ["InferenceSession", "IOBinding", "ModelMetadata", "NodeArg", "OrtDevice", "OrtValue", "RunOptions", "SessionOptions"]
)
def test_members(name: str) -> None:
    theirs = {member for member in dir(getattr(onnxruntime, name)) if not member.startswith("_")}
    ours = getattr(dovetail_onnxruntime, name)
    assert theirs <= {*dir(ours), *inspect.get_annotations(ours), "name", "type"}


def test_members_that_raise() -> None:
    for symbol in ABSENT:
        kind, _, member = symbol.partition(".")
        if member:
            with pytest.raises(state.NotImplemented, match=symbol):
                getattr(getattr(dovetail_onnxruntime, kind), member)(None, option=1)


def test_exceptions() -> None:
    theirs = onnxruntime.capi.onnxruntime_pybind11_state
    names = {name for name in dir(theirs) if inspect.isclass(kind := getattr(theirs, name)) and issubclass(kind, Exception)}
    assert names <= set(state.__all__)
