"""One tree of exceptions. Each has a stable `code`, an optional `hint` (what to do next), and pickles as it is."""

from collections.abc import Iterable
from typing import Any, ClassVar

from dovetail.names import printable, shortened, some, visible

__all__ = [
    "CompileError",
    "DataDependentShape",
    "DeviceError",
    "DeviceLost",
    "DeviceNotFound",
    "DeviceUnavailable",
    "DovetailError",
    "FormatError",
    "GraphError",
    "InferError",
    "InputError",
    "OperatorError",
    "OutOfMemory",
    "PluginBlocked",
    "PluginConflict",
    "PluginError",
    "PluginFailed",
    "PluginIncompatible",
    "PluginNotFound",
    "RunCancelled",
    "ShapeError",
    "TimeLimitExceeded",
    "UnknownFormat",
    "UnknownOperator",
    "UnknownOption",
    "UnsupportedNode",
    "UsageError",
    "did_you_mean",
    "raised_by_handler",
]


_LONGEST = 8_000
"""Characters of a message; the logs of compilers have thousands."""


class DovetailError(Exception):
    """Base of everything that dovetail raises on purpose.

    `str(error)` is the message followed by the hint on a line of its own. In both, control characters are escaped, and what is
    very long is cut.
    """

    code: ClassVar[str] = "DT000"

    def __init__(self, message: str, *, hint: str = "") -> None:
        # Names in it may come from a file that somebody else made.
        self.message = visible(shortened(message, _LONGEST), "\n\t")
        self.hint = visible(shortened(hint, _LONGEST), "\n\t")
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.__dict__)


def _rebuild(kind: type[DovetailError], message: str, hint: str, state: dict[str, Any]) -> DovetailError:
    error = kind(message, hint=hint)
    error.__dict__.update(state)
    return error


class UsageError(DovetailError):
    """Wrong usage of a call or command: unknown option, wrong type of argument, use after close."""

    code = "DT001"


class UnknownOption(UsageError):
    """A property that the device does not have. Another device may."""

    code = "DT002"


class FormatError(DovetailError):
    """A model file that is malformed, truncated, or not of the format that its name says; a model that a format cannot hold."""

    code = "DT100"


class UnknownFormat(FormatError):
    """No installed frontend reads files of this suffix."""

    code = "DT101"


class GraphError(DovetailError):
    """A model whose graph is not valid: a cycle, an undefined input, a name defined twice."""

    code = "DT200"


class OperatorError(GraphError):
    """An operator with attributes, input count or data types that its definition does not allow."""

    code = "DT201"
    node: str | None = None
    """The name of the node, once it is known."""


class ShapeError(OperatorError):
    """Shapes that do not fit the operator."""

    code = "DT202"


class DataDependentShape(ShapeError):
    """An output shape that is known only when the data is, where a plan needs it before."""

    code = "DT204"


class UnknownOperator(OperatorError):
    """No built-in operator and no installed op pack defines this operator."""

    code = "DT203"


class CompileError(DovetailError):
    """A model that cannot be planned or compiled for the device that was requested."""

    code = "DT300"


class UnsupportedNode(CompileError):
    """No device in the list given runs this node."""

    code = "DT301"


class InferError(DovetailError):
    """A failure while a compiled model runs."""

    code = "DT400"


class InputError(InferError):
    """Inputs that do not fit the model: missing, superfluous, of wrong dtype, rank or dimension."""

    code = "DT401"


class OutOfMemory(InferError):
    """An allocation was refused by the host or device, or would exceed the budget."""

    code = "DT402"


class TimeLimitExceeded(InferError):
    """A run, or the planning for a set of input shapes, took longer than the property TIME_LIMIT allows."""

    code = "DT403"


class RunCancelled(InferError):
    """A run that was withdrawn or ended by `InferRequest.cancel`."""

    code = "DT404"


class DeviceError(DovetailError):
    """A failure that a device or its driver reported."""

    code = "DT500"


class DeviceNotFound(DeviceError):
    """No installed plugin provides a device of this name."""

    code = "DT501"


class DeviceUnavailable(DeviceError):
    """The plugin is installed, but its hardware or driver is missing."""

    code = "DT502"


class DeviceLost(DeviceError):
    """A device that was open and answers no more: it hangs, was reset or taken away, or a kernel broke its context.

    Whatever was compiled for it raises this. `Core.reset_device` forgets it, so that it is opened anew.
    """

    code = "DT503"


class PluginError(DovetailError):
    """Something about a plugin package."""

    code = "DT600"


class PluginNotFound(PluginError):
    """No plugin of this name is installed."""

    code = "DT601"


class PluginBlocked(PluginError):
    """The plugin is switched off by the allow and block lists."""

    code = "DT602"


class PluginIncompatible(PluginError):
    """The plugin needs another version of dovetail, or a recipe needs another version of the plugin."""

    code = "DT603"


class PluginFailed(PluginError):
    """The plugin raised while it was imported or registered; `__cause__` has the original error."""

    code = "DT604"


class PluginConflict(PluginError):
    """Several plugins provide the same device, format or operator, and nothing says which is meant."""

    code = "DT605"


_LISTED = 20
"""Known words that a suggestion lists."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"Did you mean 'x'?"` for the closest known word, or the sorted list of all known words, or `""` if there are none.

    Example: `did_you_mean("OPENCLL", ["NUMPY", "OPENCL"])` -> `"Did you mean 'OPENCL'?"`.
    """
    import difflib  # 1 ms at start-up

    names = sorted(known)
    folded = {name.casefold(): name for name in reversed(names)}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.65)
    if close:
        return f"Did you mean '{printable(folded[close[0]])}'?"
    return f"Known: {some(names, _LISTED)}." if names else ""


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program raised it: `sys.exit` for SIGTERM, say, or a `TimeoutError` for SIGALRM.

    Handlers run in the middle of whatever the main thread does; it is not the mistake of a plugin, and stays as it is. So does
    Ctrl-C in `__set_name__`, from which Python 3.11 makes a `RuntimeError`.
    """
    if isinstance(error.__cause__, KeyboardInterrupt):
        return True
    import signal  # here, because few programs need it

    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    step = error.__traceback__ if codes else None
    while step is not None and step.tb_frame.f_code not in codes:
        step = step.tb_next
    return step is not None


def _code(handler: Any) -> Any:
    """The code of a function, method, partial or object that is called; None for handlers that are not Python's."""
    while hasattr(handler, "func"):  # of functools.partial
        handler = handler.func
    called = handler if hasattr(handler, "__code__") else vars(type(handler)).get("__call__")
    return getattr(called, "__code__", None)
