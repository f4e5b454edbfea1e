"""A custom layer as data."""

from collections.abc import Mapping

from dovetail.dataclass import dataclass
from dovetail.op import Formula

__all__ = ["Argument", "DataArgument", "Define", "Layer", "Size", "TensorArgument", "WorkSizes"]


@dataclass(frozen=True, slots=True)
class Define:
    """`#define name value`: the value of the attribute `param` where the node has it, else `default`, None where there is none.

    `type` is `""`, `int`, `float`, `int[]` or `float[]`.
    """

    place: str
    name: str
    param: str
    type: str
    default: str | None


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """An argument of the kernel function: an input or output of the node, in memory as `format` says (`ANY`: as it comes)."""

    place: str
    is_output: bool
    port: int
    format: str


@dataclass(frozen=True, slots=True)
class DataArgument:
    """An argument of the kernel function: a constant of the node, by name."""

    place: str
    name: str


Argument = TensorArgument | DataArgument


@dataclass(frozen=True, slots=True)
class Size:
    """A global or local size: one to three formulas."""

    text: str
    formulas: tuple[Formula, ...]

    def evaluate(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The numbers for B, F, Y and X. Raises `UsageError`."""
        return tuple(formula.evaluate(values) for formula in self.formulas)


@dataclass(frozen=True, slots=True)
class WorkSizes:
    """NDRange formulas over the dimensions of an input, or of output 0 where `input` is None.

    Without `global_size` there is a work item for each element of output 0.
    """

    place: str
    global_size: Size | None = None
    local_size: Size | None = None
    input: int | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One `CustomLayer`: for operators called `name` (an operator type, alone or as `domain::type`).

    `place` is file and line, `file` the file as reports show it. `source` is the text of all its source files, each with its
    title line. `arguments` are in the order of the kernel function.
    """

    place: str
    file: str
    name: str
    entry: str
    source: str
    defines: tuple[Define, ...]
    arguments: tuple[Argument, ...]
    options: str
    work: WorkSizes

    @property
    def title(self) -> str:
        """The name in reports."""
        return f"custom layer {self.name} ({self.file})"
