"""The exceptions that programs catch, with onnxruntime's numbers and messages, and the errors of dovetail as these."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from dovetail.errors import (
    DovetailError,
    FormatError,
    GraphError,
    InputError,
    OperatorError,
    ShapeError,
    UnknownOperator,
    UsageError,
)

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
    "coded",
    "failed_run",
    "loading",
]


class _OrtError(Exception):
    number: ClassVar[int] = 1
    label: ClassVar[str] = "FAIL"


class Fail(_OrtError):
    """A failure without a class of its own."""


class InvalidArgument(_OrtError):
    """Inputs or outputs that do not fit the model."""

    number, label = 2, "INVALID_ARGUMENT"


class NoSuchFile(_OrtError):
    """A model file that does not exist."""

    number, label = 3, "NO_SUCHFILE"


class NoModel(_OrtError):
    """A session without a model."""

    number, label = 4, "NO_MODEL"


class EngineError(_OrtError):
    """A failure of the engine."""

    number, label = 5, "ENGINE_ERROR"


class RuntimeException(_OrtError):
    """A failure while the model runs."""

    number, label = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(_OrtError):
    """A file that is not an ONNX model, or a damaged one."""

    number, label = 7, "INVALID_PROTOBUF"


class ModelLoaded(_OrtError):
    """A session that has a model already."""

    number, label = 8, "MODEL_LOADED"


class NotImplemented(_OrtError):  # noqa: A001  # onnxruntime's name
    """A feature of onnxruntime that is not there."""

    number, label = 9, "NOT_IMPLEMENTED"


class InvalidGraph(_OrtError):
    """A model whose graph is not valid."""

    number, label = 10, "INVALID_GRAPH"


class EPFail(_OrtError):
    """A failure of an execution provider."""

    number, label = 11, "EP_FAIL"


class ModelLoadCanceled(_OrtError):
    """Loading that was cancelled."""

    number, label = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(_OrtError):
    """A model that has to be compiled before."""

    number, label = 13, "MODEL_REQUIRES_COMPILATION"


class DeviceReset(_OrtError):
    """A device that was lost."""

    number, label = 15, "DEVICE_RESET"


class NotFound(_OrtError):
    """Something asked for by name that is not there."""

    number, label = 14, "NOT_FOUND"


def coded(kind: type[_OrtError], message: str) -> _OrtError:
    """An exception with the beginning that onnxruntime gives its messages."""
    return kind(f"[ONNXRuntimeError] : {kind.number} : {kind.label} : {message}")


@contextmanager
def loading(path: str | None, content: bytes | None) -> Iterator[None]:
    """Errors of dovetail while a model is read and compiled, as the exceptions that onnxruntime raises for the same mistake."""
    try:
        yield
    except FormatError as error:
        raise _unreadable(error, path, content) from error
    except UnknownOperator as error:
        raise coded(InvalidGraph if " ai.onnx::" in error.message else Fail, f"This is an invalid model. {error}") from error
    except ShapeError as error:
        raise coded(Fail, str(error)) from error
    except OperatorError as error:
        raise coded(InvalidGraph, f"This is an invalid model. {error}") from error
    except GraphError as error:
        raise coded(InvalidArgument, f"Invalid model. {error}") from error
    except UsageError as error:
        raise coded(InvalidArgument, str(error)) from error
    except DovetailError as error:
        raise coded(Fail, str(error)) from error


def _unreadable(error: FormatError, path: str | None, content: bytes | None) -> _OrtError:
    where = "" if path is None else f"Load model from {path} failed:"
    if path is not None and not os.path.exists(path):
        return coded(NoSuchFile, f"{where}Load model {path} failed. File doesn't exist")
    found = _graph_in(path, content)
    if found is None:
        what = "Protobuf parsing failed." if where else "Failed to load model because protobuf parsing failed."
        return coded(InvalidProtobuf, f"{where}{what} ({error})")
    if not found:
        return coded(InvalidArgument, f"{where}No graph was found in the protobuf. ({error})")
    return coded(Fail, f"{where}{error}")


def _graph_in(path: str | None, content: bytes | None) -> bool | None:
    """Whether the model has a graph; None for what is not a model. Programs fetch a damaged file again, so it has to be known.

    Without the package onnx a file that is not empty counts as damaged.
    """
    try:
        # Here, because only models that are refused need it.
        from google.protobuf.message import DecodeError
        from onnx import ModelProto
    except ImportError:
        return None if content or (path is not None and os.path.getsize(path)) else False
    proto = ModelProto()
    try:
        if path is not None:
            with open(path, "rb") as file:
                content = file.read()
        proto.ParseFromString(content or b"")
    except (DecodeError, OSError, RecursionError):
        return None
    return bool(proto.HasField("graph"))


def failed_run(error: DovetailError) -> _OrtError:
    """An error of dovetail while a model runs, as onnxruntime's exception."""
    if isinstance(error, InputError):
        return coded(InvalidArgument, str(error))
    kind = Fail if isinstance(error, GraphError) else RuntimeException
    return coded(kind, f"Non-zero status code returned while running the model. {error}")
