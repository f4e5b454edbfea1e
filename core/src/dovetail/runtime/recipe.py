"""Recipes: compiled models as descriptions that travel to other processes and machines."""

import os
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail._version import __version__
from dovetail.dataclass import dataclass, field
from dovetail.errors import FormatError, PluginIncompatible
from dovetail.graph.model import Model
from dovetail.graph.reloadable import check_reloadable
from dovetail.graph.types import TensorType
from dovetail.plugins.discovery import index
from dovetail.plugins.records import HOST

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """A compiled model as a picklable description; `CompiledModel.of` makes a model of it, which is compiled on first use.

    A model that was read from files travels as their names and SHA-256 digests, the model first, relative to `folder`; any other
    one as `content`, its pickle. `device` is what `compile_model` was given, `properties` are those and the ones set for the
    device before, `settings` those of the `Core`. `requires` has the versions of dovetail and of the distributions that read the
    model, define its operators and, by the plan's report, run it. `prepare` reads and prepares the model on first use.
    """

    source: str
    format: str
    folder: str
    files: Mapping[str, str]
    content: bytes = field(repr=False)
    requires: Mapping[str, str]
    device: str
    properties: Mapping[str, Any]
    settings: Mapping[str, Any]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType | None]
    prepare: "Callable[[Recipe], tuple[Model, Any]]" = field(repr=False, compare=False)

    @staticmethod
    def of(model: Model, used: set[str], **others: Any) -> "Recipe":
        """The recipe of a model that these distributions run. Files that have changed since they were read do not count."""
        found = {path: _digest(path, read) for path, read in model.files}
        folder = os.path.dirname(next(iter(found))) if found and all(found.values()) else ""
        files = {Path(os.path.relpath(path, folder)).as_posix(): digest for path, digest in found.items() if folder}
        requires = {name: version for name, version in _installed().items() if name in used}
        if not files:
            check_reloadable(model.graph.constants.values())
        content = b"" if files else pickle.dumps(model)
        return Recipe(model.source, model.format, folder, files, content, requires, inputs=model.inputs, **others)

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the model, wherever its files are."""
        import hashlib  # OpenSSL: 3 ms at start-up

        return hashlib.sha256(repr(self.files).encode() if self.files else self.content).hexdigest()

    def check(self) -> None:
        """Compare this environment with what the recipe requires; nothing is imported or read.

        Raises `PluginIncompatible` naming the distributions that are missing or have another version, with the line for pip.
        """
        found = _installed()
        wrong = {name: version for name, version in self.requires.items() if found.get(name) != version}
        if wrong:
            listed = ", ".join(f"{name} {version} (here {found.get(name, 'missing')})" for name, version in wrong.items())
            hint = f"pip install {' '.join(map('=='.join, wrong.items()))}"
            raise PluginIncompatible(f"{self.source} was compiled with packages that are not here: {listed}", hint=hint)

    def read(self, read_file: Callable[[Path, str], Model]) -> Model:
        """The model, from its files by `read_file(path, format)`. Raises `FormatError` unless they have the recipe's digests."""
        for path, digest in ((Path(self.folder, name), digest) for name, digest in self.files.items()):
            if _digest(path) != digest:
                wrong = "has changed since the model was compiled" if path.exists() else "is missing"
                hint = "bring it back, or name the folder that has it: dataclasses.replace(recipe, folder=...)"
                raise FormatError(f"the file {path} of {self.source} {wrong}", hint=hint)
        return read_file(Path(self.folder, next(iter(self.files))), self.format) if self.files else pickle.loads(self.content)


def _installed() -> dict[str, str]:
    return {HOST: __version__, **{record.distribution: record.version for record in index()}}


def _digest(path: str | Path, read: os.stat_result | None = None) -> str:
    """The SHA-256 digest of a file; `""` when it cannot be read, or has changed since it was read."""
    import hashlib  # as above

    with suppress(OSError), open(path, "rb") as file:
        now = os.fstat(file.fileno())
        if read is None or (read.st_size, read.st_mtime_ns) == (now.st_size, now.st_mtime_ns):
            return hashlib.file_digest(file, "sha256").hexdigest()
    return ""
