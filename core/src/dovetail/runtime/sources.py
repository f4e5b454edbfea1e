"""The objects that hold a model: paths, bytes, open files, resources of packages, protobuf messages."""

from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Any

from dovetail.errors import UsageError

__all__ = ["content_of"]


def content_of(source: Any, format: str | None) -> tuple[Path | bytes, str]:
    """What a frontend gets, and the suffix that names it: `format`, else what the object tells, else `""`.

    Objects are known by what they can do, so that nothing is imported for them. Raises `UsageError` for others.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), format or ""
    if isinstance(source, str | PathLike):
        path = Path(fspath(source))
        return path, format or _suffix(path.name)
    if hasattr(source, "SerializeToString"):
        # The package of a protobuf message names its format: onnx.ModelProto.
        return source.SerializeToString(), format or source.DESCRIPTOR.full_name.partition(".")[0]
    for method in ("read_bytes", "read"):
        if hasattr(source, method):
            return _checked(getattr(source, method)(), source), format or _suffix(getattr(source, "name", ""))
    raise UsageError(
        f"a model cannot be a {type(source).__name__}",
        hint="accepted: a path, bytes with format=, an open file, a resource of a package, an onnx.ModelProto",
    )


def _suffix(name: Any) -> str:
    """The suffix of a file's name. Files without a name have a number, or none."""
    return PurePath(name).suffix.removeprefix(".").lower() if isinstance(name, str) else ""


def _checked(content: Any, source: Any) -> bytes:
    if not isinstance(content, bytes | bytearray | memoryview):
        hint = "open the file for bytes: open(path, 'rb')"
        raise UsageError(f"reading the {type(source).__name__} gives {type(content).__name__}", hint=hint)
    return bytes(content)
