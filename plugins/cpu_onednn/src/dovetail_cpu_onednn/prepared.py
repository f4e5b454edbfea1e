"""A stage of a node, ready to be launched."""

from collections.abc import Mapping

from dovetail.dataclass import dataclass
from dovetail_cpu_onednn.binding import Primitive
from dovetail_cpu_onednn.kernel import Stage
from dovetail_cpu_onednn.shared_constants import Constant, Referable

__all__ = ["Prepared"]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared(Referable):
    """A stage with its primitive, the constants that were brought into its layouts, and the size of its scratchpad."""

    stage: Stage
    primitive: Primitive
    constants: Mapping[int, Constant]
    scratchpad: int
