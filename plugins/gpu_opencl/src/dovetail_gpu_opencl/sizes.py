"""Numbers that change with shapes as arguments of a kernel, so that its program serves every shape.

Quotients by such a number are a product and a shift, as compilers make them of constants: for 0 <= x < 2^31 and 0 < d < 2^31,
x / d is the upper half of 2x * ceil(2^(31 + l) / d), shifted right by l = ceil(log2 d) (Granlund and Montgomery, 1994).
"""

from collections.abc import Collection, Hashable, Mapping

import numpy as np

from dovetail.dataclass import dataclass
from dovetail_gpu_opencl.launch import Scalar

__all__ = ["RuntimeSizes", "by_value"]


@dataclass(frozen=True, slots=True)
class _Number:
    """A number and, for a divisor, the two beside it."""

    name: str
    value: int
    divides: bool

    @property
    def scalars(self) -> dict[str, np.int32 | np.uint32]:
        found: dict[str, np.int32 | np.uint32] = {self.name: np.int32(self.value)}
        if self.divides:
            divisor = max(1, self.value)  # 0 where nothing is launched
            shift = (divisor - 1).bit_length()
            factor = -(-(1 << 31 + shift) // divisor)
            found |= {f"{self.name}_factor": np.uint32(factor), f"{self.name}_shift": np.int32(shift)}
        return found


class RuntimeSizes:
    """Collects the numbers of one kernel's source, and names them in the order in which they are first asked for.

    Numbers asked for by the same key are one argument; a key says where a number comes from, because two that are equal for
    one shape may differ for another.
    """

    def __init__(self, prefix: str = "n") -> None:
        self._prefix = prefix
        self._numbers: dict[Hashable, _Number] = {}

    def number(self, value: int, key: Hashable) -> str:
        """The name of a number, an int."""
        return self._add(value, ("number", key), divides=False)

    def divisor(self, value: int, key: Hashable) -> str:
        """The name of a number above 0 that `QUOTIENT` and `REMAINDER` of quotients.cl take."""
        return self._add(value, ("divisor", key), divides=True)

    def keep(self, name: str, value: int, *, divides: bool) -> None:
        """Adds a number by its own name."""
        self._numbers[name] = _Number(name, value, divides)

    def _add(self, value: int, key: Hashable, *, divides: bool) -> str:
        if key not in self._numbers:
            self._numbers[key] = _Number(f"{self._prefix}{len(self._numbers)}", value, divides)
        return self._numbers[key].name

    @property
    def _scalars(self) -> dict[str, np.int32 | np.uint32]:
        return {name: value for number in self._numbers.values() for name, value in number.scalars.items()}

    @property
    def parameters(self) -> str:
        """The declarations of the numbers, each with a comma before it."""
        kinds = {name: "uint" if isinstance(value, np.uint32) else "int" for name, value in self._scalars.items()}
        return "".join(f", const {kind} {name}" for name, kind in kinds.items())

    @property
    def passed(self) -> str:
        """The names of the numbers, each with a comma before it."""
        return "".join(f", {name}" for name in self._scalars)

    @property
    def arguments(self) -> tuple[Scalar, ...]:
        """The numbers, in the order of `parameters`."""
        return tuple(map(Scalar, self._scalars.values()))


def by_value(
    defines: Mapping[str, object], names: Collection[str], divisors: Collection[str] = ()
) -> tuple[dict[str, object], tuple[Scalar, ...]]:
    """Defines without those of these names, which become arguments; `QUOTIENT` takes `divisors`.

    `SIZES` declares them and `PASSED` names them, each with a comma before it.
    """
    sizes = RuntimeSizes()
    for name in (*names, *divisors):
        if name in defines:
            sizes.keep(name, int(str(defines[name])), divides=name in divisors)
    kept = {name: value for name, value in defines.items() if name not in (*names, *divisors)}
    return kept | {"SIZES": sizes.parameters, "PASSED": sizes.passed}, sizes.arguments
