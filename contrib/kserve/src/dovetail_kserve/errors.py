"""Errors as answers: HTTP status, gRPC status and text of each exception of dovetail."""

from dovetail.errors import (
    DeviceError,
    DovetailError,
    GraphError,
    InferError,
    InputError,
    OutOfMemory,
    RunCancelled,
    TimeLimitExceeded,
    UsageError,
)

__all__ = ["RequestRefused", "error_text", "grpc_status_name", "http_status"]


class RequestRefused(InputError):
    """A request that is refused before the model sees it. `status` is the HTTP status of the answer."""

    status: int

    def __init__(self, message: str, *, hint: str = "", status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.status = status


_STATUS: tuple[tuple[type[DovetailError], int], ...] = (
    (OutOfMemory, 413),
    (TimeLimitExceeded, 504),
    (RunCancelled, 503),
    (DeviceError, 503),
    (InferError, 400),
    (GraphError, 400),
    (UsageError, 400),
)
"""The first class that an error belongs to counts. A graph that is wrong only for some shapes is the request's fault."""

_GRPC = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    413: "RESOURCE_EXHAUSTED",
    415: "INVALID_ARGUMENT",
    431: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def http_status(error: DovetailError) -> int:
    """The HTTP status of the answer to a request that raised this."""
    if isinstance(error, RequestRefused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def grpc_status_name(error: DovetailError) -> str:
    """The name of the gRPC status, as `grpc.StatusCode` has it."""
    return _GRPC.get(http_status(error), "INTERNAL")


def error_text(error: DovetailError) -> str:
    """Code, message and hint: `DT401: the request has no input 'x' ...`."""
    return f"{error.code}: {error}"
