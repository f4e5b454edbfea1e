"""The base of kernels with tunable parameters: the problem, and the choice of parameters for it."""

import copy
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from dovetail.dataclass import dataclass
from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.tuning import Tunings, tunings_of

__all__ = ["Parameters", "Problem", "Tuned"]


@dataclass(frozen=True, slots=True)
class Problem:
    """The product that parameters are chosen for: z products of [m, k] by [k, n], elements of so many bytes.

    `key` names everything that its speed depends on. `columns` says that each work item loads one column of b: convolutions on
    GPUs. `matrix` is the format of the matrix units that multiply, 0 for none.
    """

    key: str
    z: int
    m: int
    n: int
    k: int
    itemsize: int
    columns: bool = False
    matrix: int = 0


class Parameters(Protocol):
    """The values of a kernel's tunables. They are equal when these are, and their text is for people."""

    def numbers(self) -> list[int]:
        """As tables of tuned parameters keep them."""
        ...


P = TypeVar("P", bound=Parameters)
_ALMOST = 1.15


class Tuned(CLKernel, Generic[P]):
    """A kernel with tunables P."""

    little: ClassVar[float] = 0.0
    """A difference in cost that is not worth another program, however large in proportion."""
    _forced: P | None = None

    @property
    def tunings(self) -> Tunings:
        """The tuned parameters of the device, found once for a model: to find the cache folder takes 50 us."""
        if self.packed.tunings is None:
            self.packed.tunings = tunings_of(self.caps)
        return self.packed.tunings

    @abstractmethod
    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which parameters are chosen; None when nothing is computed."""

    @abstractmethod
    def possible(self, problem: Problem) -> Iterable[P]:
        """All parameters that can run the problem on this device."""

    @abstractmethod
    def cost(self, problem: Problem, parameters: P) -> float:
        """How long it is likely to take, in any unit."""

    def candidates(self, problem: Problem) -> Sequence[P]:
        """The candidates of the tuner, those first that are likely to be fast."""
        return sorted(set(self.possible(problem)), key=lambda p: self.cost(problem, p))

    def default(self, problem: Problem) -> P:
        """The parameters for a problem that nobody has tuned."""
        return min(self.possible(problem), key=lambda p: self.cost(problem, p))

    def least(self, problem: Problem) -> float:
        """The cost of a problem, by which kernels are compared: that of the best parameters by the cost model, also where tuned
        ones, which are faster, seem to cost more.
        """
        return self.cost(problem, self._forced or self.default(problem))

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> P | None:
        """Parameters from a table; None when these numbers are none."""

    def tiling(self, problem: Problem) -> P:
        """The parameters for a problem: those that `using` was given, the tuned ones if they are possible, or the default."""
        return self._prescribed(problem) or self.default(problem)

    def _prescribed(self, problem: Problem) -> P | None:
        if self._forced is not None:
            return self._forced
        numbers = self.tunings.get(problem.key)
        tuned = None if numbers is None else self.read(numbers)
        return tuned if tuned is not None and tuned in self.possible(problem) else None

    def settled(self, problem: Problem, node: TypedNode) -> P:
        """The parameters for a launch: those of `tiling`, or unless the kernel insists others that the node was built with for
        another shape, where the cost model finds them almost as fast. A program takes a driver 0.1 to 1 s: a hurried plan takes
        the best of those others, however slow.
        """
        built_with: list[P] = self.packed.built_with.setdefault((self.name, node.name), [])

        def nearest() -> P | None:
            usable = (p for p in built_with if self.is_possible(problem, p))
            return min(usable, key=lambda p: self.cost(problem, p), default=None)

        if self.packed.hurried and (near := nearest()) is not None:
            tuned = self._prescribed(problem)
            return tuned if tuned in built_with else near
        best = self.tiling(problem)
        if best in built_with:
            return best
        if built_with and not self.insists(problem):
            near = nearest()
            if near is not None and self.is_almost(self.cost(problem, near), self.cost(problem, best)):
                return near
        built_with.append(best)
        return best

    def is_possible(self, problem: Problem, parameters: P) -> bool:
        """Whether these parameters can run the problem on this device."""
        return parameters in self.possible(problem)

    def insists(self, problem: Problem) -> bool:
        """Whether no other parameters will do, however fast."""
        return self._prescribed(problem) is not None

    def is_almost(self, cost: float, best: float) -> bool:
        """Whether what costs so much is almost as fast as what costs `best`."""
        return cost <= max(_ALMOST * best, best + self.little)

    def gives_way(self, node: TypedNode, cost: float, other: str, others_cost: float) -> bool:
        """Whether a node of this cost is left to another kernel: for one of the two that it was built with, if almost as fast."""
        own, others = (bool(self.packed.built_with.get((name, node.name))) for name in (self.name, other))
        if own == others:
            return others_cost < cost
        return not self.is_almost(cost, others_cost) if own else self.is_almost(others_cost, cost)

    def using(self, parameters: P) -> Self:
        """This kernel with the same parameters for all problems."""
        bound = copy.copy(self)
        bound._forced = parameters
        return bound
