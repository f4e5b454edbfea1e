"""Answers of devices and kernels to the question whether they run a node."""

import enum

from dovetail.dataclass import dataclass

__all__ = ["Accepted", "Reason", "Refusal"]


class Reason(enum.Enum):
    """The closed vocabulary of refusals."""

    OPERATOR = "no kernel for this operator"
    DTYPE = "data type"
    SHAPE = "shape"
    ATTRIBUTE = "attribute"
    LAYOUT = "memory layout"
    POST_OP = "post-op"
    DYNAMIC = "shape known only at run time"
    CAPABILITY = "the device lacks a capability"
    MEMORY = "memory"
    TIME = "a run takes longer than elsewhere"
    CONFIGURATION = "no configuration of the operator's kernel"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kernel or device does not run a node. False in a condition, so `a or b` drops a refusal: use `is not None`."""

    reason: Reason
    detail: str = ""

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


@dataclass(frozen=True, slots=True)
class Accepted:
    """A kernel or device runs a node; `kernel` names how. True in a condition.

    `from_operator` as in `NodeReport`: the kernel is the operator's own and not one of the device package.
    """

    kernel: str = ""
    from_operator: bool = False
