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
    def __init_subclass__(cls, number: int, label: str) -> None:
        cls.number, cls.label = number, label

    number: ClassVar[int]
    label: ClassVar[str]


class Fail(_OrtError, number=1, label="FAIL"):
    """A failure without a class of its own."""


class InvalidArgument(_OrtError, number=2, label="INVALID_ARGUMENT"):
    """Inputs or outputs that do not fit the model."""


class NoSuchFile(_OrtError, number=3, label="NO_SUCHFILE"):
    """A model file that does not exist."""


class NoModel(_OrtError, number=4, label="NO_MODEL"):
    """A session without a model."""


class EngineError(_OrtError, number=5, label="ENGINE_ERROR"):
    """A failure of the engine."""


class RuntimeException(_OrtError, number=6, label="RUNTIME_EXCEPTION"):
    """A failure while the model runs."""


class InvalidProtobuf(_OrtError, number=7, label="INVALID_PROTOBUF"):
    """A file that is not an ONNX model, or a damaged one."""


class ModelLoaded(_OrtError, number=8, label="MODEL_LOADED"):
    """A session that has a model already."""


class NotImplemented(_OrtError, number=9, label="NOT_IMPLEMENTED"):  # noqa: A001  # onnxruntime's name
    """A feature of onnxruntime that is not there."""


class InvalidGraph(_OrtError, number=10, label="INVALID_GRAPH"):
    """A model whose graph is not valid."""


class EPFail(_OrtError, number=11, label="EP_FAIL"):
    """A failure of an execution provider."""


class ModelLoadCanceled(_OrtError, number=12, label="MODEL_LOAD_CANCELED"):
    """Loading that was cancelled."""


class ModelRequiresCompilation(_OrtError, number=13, label="MODEL_REQUIRES_COMPILATION"):
    """A model that has to be compiled before."""


class DeviceReset(_OrtError, number=15, label="DEVICE_RESET"):
    """A device that was lost."""


class NotFound(_OrtError, number=14, label="NOT_FOUND"):
    """Something asked for by name that is not there."""


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
