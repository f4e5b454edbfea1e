"""Errors of devices: which of them another device may not repeat, and how they name the device."""

from dovetail.errors import (
    DovetailError,
    GraphError,
    InferError,
    InputError,
    RunCancelled,
    TimeLimitExceeded,
    UsageError,
    raised_by_handler,
)

__all__ = ["is_of_the_caller", "named"]


def is_of_the_caller(error: BaseException) -> bool:
    """True for what no other device would do better: bad input, a graph that is wrong, a run that was ended or interrupted."""
    callers = (InputError, UsageError, GraphError, RunCancelled, TimeLimitExceeded)
    return isinstance(error, callers) or not isinstance(error, Exception) or raised_by_handler(error)


def named(error: BaseException, device: str) -> BaseException:
    """The error to raise, which names the device: the error itself, or an `InferError` with it as its cause."""
    if (isinstance(error, DovetailError) and device in str(error)) or not isinstance(error, Exception):
        return error
    if isinstance(error, DovetailError):
        error.message = f"{device}: {error.message}"
        return error
    wrapped = InferError(f"{device}: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
