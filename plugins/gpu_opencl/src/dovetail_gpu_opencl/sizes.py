"""Numbers that change with shapes as arguments of a kernel, so that its program serves every shape.

Quotients by such a number are a product and a shift, as compilers make them of constants: for 0 <= x < 2^31 and 0 < d < 2^31,
x / d is the upper half of 2x * ceil(2^(31 + l) / d), shifted right by l = ceil(log2 d) (Granlund and Montgomery, 1994).
"""

from collections.abc import Collection, Hashable, Mapping

from dovetail_gpu_opencl.launch import Scalar, ints, uint

__all__ = ["RuntimeSizes", "by_value"]


class RuntimeSizes:
    """Collects the numbers of one kernel's source, and names them in the order in which they are first asked for.

    Numbers asked for by the same key are one argument; a key says where a number comes from, because two that are equal for
    one shape may differ for another.
    """

    def __init__(self, prefix: str = "n") -> None:
        self._prefix = prefix
        self._names: dict[Hashable, str] = {}
        self._scalars: dict[str, Scalar] = {}

    def number(self, value: int, key: Hashable) -> str:
        """The name of a number, an int."""
        return self._add(value, ("number", key), divides=False)

    def divisor(self, value: int, key: Hashable) -> str:
        """The name of a number above 0 that `QUOTIENT` and `REMAINDER` of quotients.cl take."""
        return self._add(value, ("divisor", key), divides=True)

    def keep(self, name: str, value: int, *, divides: bool) -> None:
        """Adds a number by its own name; a divisor with the two beside it."""
        self._scalars[name] = ints(value)[0]
        if divides:
            divisor = max(1, value)  # 0 where nothing is launched
            shift = (divisor - 1).bit_length()
            self._scalars[f"{name}_factor"] = uint(-(-(1 << 31 + shift) // divisor))
            self._scalars[f"{name}_shift"] = ints(shift)[0]

    def _add(self, value: int, key: Hashable, *, divides: bool) -> str:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{self._prefix}{len(self._names)}"
            self.keep(name, value, divides=divides)
        return name

    @property
    def parameters(self) -> str:
        """The declarations of the numbers, each with a comma before it."""
        return "".join([f", const {'uint' if name.endswith('_factor') else 'int'} {name}" for name in self._scalars])

    @property
    def passed(self) -> str:
        """The names of the numbers, each with a comma before it."""
        return "".join([f", {name}" for name in self._scalars])

    @property
    def arguments(self) -> tuple[Scalar, ...]:
        """The numbers, in the order of `parameters`."""
        return tuple(self._scalars.values())


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
