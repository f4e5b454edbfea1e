"""The checks of frontends: what raises the right error passes, everything else is found."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dovetail
from dovetail.errors import FormatError, InferError, UsageError
from dovetail.graph import GraphBuilder, Model
from dovetail.testing import Outcome
from dovetail.testing.frontends import FrontendChecks

Read = Callable[[Path | bytes], Model]


def failures(read: Read, *, strict: bool = True) -> dict[str, str]:
    """Name -> what is wrong, for a frontend that reads like this, and with `strict` takes no options."""

    @dovetail.hookimpl
    def dovetail_read_model(source: Path | bytes, options: Mapping[str, Any]) -> Model:
        if options and strict:
            raise UsageError(f"unknown option {next(iter(options))!r}")
        return read(source)

    def core() -> dovetail.Core:
        made = dovetail.Core()
        plugin = SimpleNamespace(dovetail_api="1.0", dovetail_read_model=dovetail_read_model)
        made.plugins.register(plugin, name="acme", kind="frontends", key="acme")
        return made

    results = [check.result() for check in FrontendChecks("acme", core).checks]
    assert len(results) > 40
    return {r.name: r.detail for r in results if r.outcome is Outcome.FAILED}


def refuse(source: Path | bytes) -> Model:
    raise FormatError(f"{source if isinstance(source, Path) else '<bytes>'}: not a model")


def test_a_frontend_that_refuses_everything_passes() -> None:
    assert failures(refuse) == {}


def test_an_option_that_nobody_knows_is_accepted() -> None:
    assert list(failures(refuse, strict=False)) == ["unknown_option"]


def test_an_error_that_does_not_name_the_file() -> None:
    def read(source: Path | bytes) -> Model:
        raise FormatError("not a model")

    assert "does not name the file" in failures(read)["png-file"]
    assert "png-bytes" not in failures(read)


@pytest.mark.parametrize(
    ("error", "message"),
    [(ValueError("bad magic"), "PluginFailed instead of FormatError"), (InferError("no"), "InferError instead of FormatError")],
)
def test_errors_of_another_kind(error: Exception, message: str) -> None:
    def read(source: Path | bytes) -> Model:
        raise error

    assert message in failures(read)["random-3-bytes"]


def test_malformed_input_that_is_read() -> None:
    def read(source: Path | bytes) -> Model:
        g = GraphBuilder()
        return g.model([g.input("x", "float32", (1,))])

    assert "malformed input was read" in failures(read)["empty-bytes"]


def test_a_file_that_is_written() -> None:
    def read(source: Path | bytes) -> Model:
        if isinstance(source, Path) and source.is_file():
            source.write_bytes(b"mine")
        return refuse(source)

    assert failures(read)["png-file"] == "the file was written"


def test_a_file_beside_it() -> None:
    def read(source: Path | bytes) -> Model:
        if isinstance(source, Path) and source.is_file():
            source.with_suffix(".cache").write_bytes(b"x")
        return refuse(source)

    assert failures(read)["png-file"] == "reading wrote another file"
