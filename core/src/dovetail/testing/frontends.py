"""The checks of a frontend: malformed input gives an error of its own, never a crash, and leaves the frontend usable."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from dovetail.errors import DovetailError, FormatError, GraphError, UsageError
from dovetail.locks import cached_property
from dovetail.runtime import Core
from dovetail.testing.check import PASSED, Check, Verdict, require
from dovetail.testing.kit import Kit

__all__ = ["FrontendChecks"]

_PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
_HTML = b"<!DOCTYPE html><html><body>404: not found</body></html>"
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


class FrontendChecks(Kit):
    """The checks of the frontend for files of the suffix `format` (without the dot).

    `make_core` gives the session, `seed` the random bytes.
    """

    def __init__(self, format: str, make_core: Callable[[], Core] = Core, seed: int = 7) -> None:
        self.format = format
        super().__init__(make_core, seed)

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every check, in order."""
        return (*self._malformed(), *self._files())

    def _malformed(self) -> Iterator[Check]:
        rng = np.random.default_rng(self._seed)
        contents = {"empty": b"", "png": _PNG, "html": _HTML, "lfs_pointer": _LFS, "zeros": bytes(1000)}
        contents |= {f"random-{i}": rng.bytes(int(size)) for i, size in enumerate(rng.integers(1, 5000, 20))}
        for name, content in contents.items():
            yield Check("malformed", f"{name}-bytes", partial(self._refuses_bytes, content))
            yield Check("malformed", f"{name}-file", partial(self._refuses_file, content))

    def _files(self) -> Iterator[Check]:
        yield Check("files", "missing", partial(self._refuses_path, Path("missing")))
        yield Check("files", "folder", partial(self._refuses_path, Path()))
        yield Check("files", "unknown_option", self._refuses_option)

    def _refuses_bytes(self, content: bytes) -> Verdict:
        return _require_format_error(lambda: self.core.read_model(content, format=self.format))

    def _refuses_file(self, content: bytes) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"bad.{self.format}"
            path.write_bytes(content)
            verdict = _require_format_error(lambda: self.core.read_model(path), path.name)
            require(path.read_bytes() == content, "the file was written")
            require(list(path.parent.iterdir()) == [path], "reading wrote another file")
            return verdict

    def _refuses_path(self, below: Path) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            return _require_format_error(lambda: self.core.read_model(Path(folder) / below, format=self.format))

    def _refuses_option(self) -> Verdict:
        try:
            self.core.read_model(b"x", format=self.format, no_such_option=1)
        except (UsageError, FormatError) as error:
            require(isinstance(error, UsageError), "an unknown option must raise UsageError, before anything is read")
            require("no_such_option" in str(error), f"the error does not name the option: {error}")
            return PASSED
        raise AssertionError("an unknown option was accepted")


def _require_format_error(read: Callable[[], object], named: str = "") -> Verdict:
    try:
        model = read()
    except (FormatError, GraphError) as error:
        require(error.message.strip(), "the error has no message")
        require(named in error.message, f"the error does not name the file: {error.message}")
        return PASSED
    except DovetailError as error:
        raise AssertionError(f"{type(error).__name__} instead of FormatError or GraphError: {error}") from error
    raise AssertionError(f"malformed input was read: {model!r:.80}")
