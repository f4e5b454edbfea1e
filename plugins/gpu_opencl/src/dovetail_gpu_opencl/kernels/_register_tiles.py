"""The products of CPUs, gemm_rows.cl and conv_rows.cl: tilings of registers as data, and which one a product gets."""

import dataclasses
import functools
from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned

__all__ = [
    "NARROW",
    "RegisterTiled",
    "RegisterTiling",
    "estimate",
    "first_tiling",
    "lanes_of",
    "least_cycles",
    "register_tilings",
]


@dataclass(frozen=True, slots=True)
class RegisterTiling:
    """A work item computes `rows` rows of `vectors` vectors. `down`: work items that follow each other go down the rows."""

    rows: int
    vectors: int
    down: int = 1

    def defines(self) -> dict[str, object]:
        """The defines of the source; `down` is an argument."""
        return {"ROWS": self.rows, "VECTORS": self.vectors}

    def work(self, rows: int, columns: int) -> tuple[int, int]:
        """The first two dimensions of the NDRange, for so many tiles."""
        return (rows, columns) if self.down else (columns, rows)

    def numbers(self) -> list[int]:
        """As tables of tuned parameters keep it."""
        return list(dataclasses.astuple(self))

    def __str__(self) -> str:
        return f"{self.rows} rows x {self.vectors} vectors, {'down' if self.down else 'along'} the rows"


SHAPES = ((4, 4), (4, 3), (6, 4), (8, 3), (6, 2), (2, 4), (2, 8), (1, 8), (1, 4), (8, 1), (4, 1))
"""Rows and vectors. Sums of 16 vectors and more need 32 registers."""
NARROW = RegisterTiling(8, 1)
"""The default for few columns."""
_SINGLE = RegisterTiling(1, 4)
"""The default for few rows on `_CORES` cores and more, which larger tiles leave idle."""
_BETTER = 0.8
"""These must be estimated to take so much of the time of the widest tile for the registers: each is a program to build."""
_CORES = 8
_MANY = 64
"""Rows for which the narrow tile is compared with the widest: it is chosen by the columns, which weights have for all sizes."""
_WORSE = 1.4
"""An entry of a table is ignored where the cost model finds it slower than the default by this factor."""
_LATENCY = 8
"""Sums that must be under way at once for the arithmetic units to be busy."""


def fits(shape: tuple[int, int], registers: int) -> bool:
    """Whether sums, a vector of each and a broadcast scalar stay in registers; a single row adds from memory."""
    rows, vectors = shape
    return rows * vectors + (vectors if rows > 1 else 1) + 1 <= registers


@functools.cache
def register_tilings(registers: int) -> tuple[RegisterTiling, ...]:
    """The tilings for so many registers, in both orders."""
    return tuple(RegisterTiling(*shape, down) for shape in SHAPES if fits(shape, registers) for down in (1, 0))


def lanes_of(problem: Problem, caps: Capabilities) -> int:
    """Elements of a vector."""
    return caps.lanes("double" if problem.itemsize == 8 else "float")


# The cost model, in cycles of a core that multiplies and adds two vectors a cycle. Compared with runs of the sizes of ResNet-50
# and MiniLM on PoCL (x86-64 with AVX-512), for targets of 16 and of 32 registers.
_ITEM = 60.0
_STORE = 8.0  # a vector of results
_SCATTER = 1.5  # a result that is stored alone
_GATHER = 1.0  # an element of the last lines, where they are shorter than a tile


def estimate(problem: Problem, tiling: RegisterTiling, caps: Capabilities, scatters: bool = False) -> float:
    """Cycles of the busiest core. `scatters`: results are stored one by one."""
    return _cycles(tiling, problem.z, problem.m, problem.n, problem.k, lanes_of(problem, caps), caps.compute_units, scatters)


def _cycles(tiling: RegisterTiling, z: int, m: int, n: int, k: int, lanes: int, units: int, scatters: bool) -> float:
    rows, vectors, cores = tiling.rows, tiling.vectors, max(1, units)
    store = _STORE + (_SCATTER * lanes if scatters else 0.0)
    blocks = z * ceil_div(n, vectors * lanes)
    whole, rest = divmod(m, rows)
    if rest != 1:
        return ceil_div(blocks * (whole + (rest > 0)), cores) * _item(rows, vectors, k, store)
    single = ceil_div(blocks, cores) * _item(1, vectors, k, store)
    return single + ceil_div(blocks * whole, cores) * _item(rows, vectors, k, store)


def _item(rows: int, vectors: int, k: int, store: float) -> float:
    """Cycles of a work item that computes so many rows."""
    sums = rows * vectors
    return _ITEM + sums * store + k * (max(sums, _LATENCY, 2 * vectors) / 2 + 0.06 * (rows + vectors))


@functools.cache
def first_tiling(registers: int) -> RegisterTiling:
    """The first shape that so many registers hold."""
    return register_tilings(registers)[0]


@functools.lru_cache(4096)
def _default(z: int, m: int, n: int, k: int, lanes: int, registers: int, units: int, scatters: bool) -> RegisterTiling:
    first = first_tiling(registers)

    def is_better(tiling: RegisterTiling, rows: int) -> bool:
        cycles, others = (_cycles(t, z, rows, n, k, lanes, units, scatters) for t in (tiling, first))
        return cycles < _BETTER * others

    if is_better(NARROW, max(m, _MANY)):
        return NARROW
    return _SINGLE if units >= _CORES and is_better(_SINGLE, m) else first


@functools.lru_cache(4096)
def _least(z: int, m: int, n: int, k: int, lanes: int, registers: int, units: int, scatters: bool) -> float:
    tiling = _default(z, m, n, k, lanes, registers, units, scatters)
    return _cycles(tiling, z, m, n, k, lanes, units, scatters)


def least_cycles(z: int, m: int, n: int, k: int, lanes: int, caps: Capabilities, scatters: bool = False) -> float:
    """Cycles of such a product in the default tiling for many columns."""
    return _least(z, m, n, k, lanes, caps.vector_registers, caps.compute_units, scatters)


class RegisterTiled(Tuned[RegisterTiling]):
    """The base of tiled kernels: chooses a tiling."""

    scatters = False
    little = 30_000.0  # cycles, some 10 us: a program of 0.2 s costs as much as in 20,000 runs

    def columns(self, problem: Problem) -> int:
        """The columns of a line in memory, which a tile had better not leave; 0 where lines are as long as tiles."""
        return 0

    def possible(self, problem: Problem) -> Sequence[RegisterTiling]:
        """Those whose sums stay in registers."""
        return register_tilings(self.caps.vector_registers)

    def cost(self, problem: Problem, parameters: RegisterTiling) -> float:
        """Cycles. Down the rows is tried first."""
        found = estimate(problem, parameters, self.caps, self.scatters) * (1 if parameters.down else 1.05)
        width = parameters.vectors * lanes_of(problem, self.caps)
        if 0 < self.columns(problem) < width:
            items = ceil_div(problem.z * ceil_div(problem.m, parameters.rows), max(1, self.caps.compute_units))
            found += _GATHER * items * min(problem.k, ceil_div(width, problem.n)) * width
        return found

    def default(self, problem: Problem) -> RegisterTiling:
        """The first shape that the registers hold, unless the cost model finds a narrow one much faster; that for few columns."""
        caps, lanes = self.caps, lanes_of(problem, self.caps)
        if 0 < self.columns(problem) < first_tiling(caps.vector_registers).vectors * lanes:
            return NARROW
        sizes = (problem.z, problem.m, problem.n, problem.k)
        return _default(*sizes, lanes, caps.vector_registers, caps.compute_units, self.scatters)

    def tiling(self, problem: Problem) -> RegisterTiling:
        """The choice of `Tuned`, but nothing from the package that should be much slower on as many cores as here are."""
        chosen = self._prescribed(problem)
        if chosen is not None and self.insists(problem):
            return chosen
        default = self.default(problem)
        if chosen is None or self.cost(problem, chosen) >= _WORSE * self.cost(problem, default):
            return default
        return chosen

    def insists(self, problem: Problem) -> bool:
        """On what was found on this machine, not on the table of the package."""
        return self._forced is not None or self.tunings.found_here(problem.key)

    def read(self, numbers: Sequence[int]) -> RegisterTiling | None:
        """The fields of a tiling, in order."""
        return RegisterTiling(*numbers) if len(numbers) == len(dataclasses.fields(RegisterTiling)) else None
