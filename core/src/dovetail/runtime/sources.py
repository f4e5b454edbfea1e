"""The objects that hold a model: paths, bytes, open files, resources of packages, protobuf messages."""

from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Any

from dovetail.errors import UsageError

__all__ = ["content_of"]


def content_of(source: Any, format: str | None) -> tuple[Path | bytes, str]:
    """The source for a frontend, and the suffix that names it: `format`, else from the object, else `""`. Raises `UsageError`."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), format or ""
    if isinstance(source, str | PathLike):
        path = Path(fspath(source))
        return path, format or _suffix(path.name)
    # Known by their methods, so that nothing is imported for them. The package of a message names its format: onnx.ModelProto.
    if hasattr(source, "SerializeToString"):
        return source.SerializeToString(), format or source.DESCRIPTOR.full_name.partition(".")[0]
    read = getattr(source, "read_bytes", None) or getattr(source, "read", None)
    if read is None:
        hint = "accepted: a path, or bytes with format=; an open file, a resource of a package, a protobuf message"
        raise UsageError(f"a model cannot be a {type(source).__name__}", hint=hint)
    content = read()
    if not isinstance(content, bytes):
        hint = "open the file for bytes: open(path, 'rb')"
        raise UsageError(f"reading the {type(source).__name__} gives {type(content).__name__}", hint=hint)
    return content, format or _suffix(getattr(source, "name", ""))


def _suffix(name: Any) -> str:
    """The suffix of a file's name. Files without a name have a number, or none."""
    return PurePath(name).suffix.removeprefix(".").lower() if isinstance(name, str) else ""
