"""Kernels of a device: ordered lists, the choice among them, and the table of a package's kernel modules."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from dovetail.dataclass import dataclass
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.errors import CompileError, PluginError
from dovetail.graph.graph import AbstractOperator

__all__ = ["REFERENCE_KERNEL", "Choice", "Kernel", "KernelTable", "choose"]

REFERENCE_KERNEL = "ref"
"""The name of the kernel that runs an operator's NumPy reference, in reports."""


class Kernel(ABC):
    """One way to run an operator on a device. Subclasses add what their device needs to prepare and launch it."""

    name: ClassVar[str]

    @abstractmethod
    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether this kernel runs the node as it is, its post-ops included."""

    def chain(self, node: TypedNode) -> tuple[str, ...]:
        """The names of the steps after the operator, as reports list them: those of the post-ops."""
        return tuple(str(getattr(p, "algorithm", p.kind)) for p in node.post_ops)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


K = TypeVar("K", bound=Kernel)


@dataclass(frozen=True, slots=True)
class Choice(Generic[K]):
    """The kernel that was chosen, why those before it in the list were not, and its answer."""

    kernel: K
    refusals: tuple[tuple[str, Refusal], ...] = ()
    answer: Accepted = Accepted()


def choose(kernels: Sequence[K], node: TypedNode) -> Choice[K] | Refusal:
    """The first kernel of an ordered list that accepts the node.

    When none does: the refusal of the last one with a reason other than OPERATOR, else of the last, else OPERATOR.
    """
    refusals: list[tuple[str, Refusal]] = []
    for kernel in kernels:
        answer: object = kernel.supports(node)
        if isinstance(answer, Accepted):
            return Choice(kernel, tuple(refusals), answer)
        if not isinstance(answer, Refusal):
            text = f"supports() of kernel {kernel.name!r} gave {answer!r} for node {node.node}"
            raise CompileError(text, hint="accepted: Accepted(kernel), or Refusal(Reason, detail)")
        refusals.append((kernel.name, answer))
    telling = [refusal for _, refusal in refusals if refusal.reason is not Reason.OPERATOR]
    if telling:
        return telling[-1]
    return refusals[-1][1] if refusals else Refusal(Reason.OPERATOR, node.op.key)


class KernelTable(Generic[K]):
    """The kernels of a device package by operator, loaded on first use.

    `<package>/<stem>.py` holds `KERNELS`, an ordered sequence, for operators that one of the packages `defined_in` defines: a
    class of the same name from elsewhere may mean something else. `<package>/_table.py` holds `KERNELS`, a mapping from stems to
    kernels, for those with one kernel that needs no file. For operators of another package, such as an op pack, the modules are
    `<package>/<their package>/<stem>.py` and `_table.py`.
    """

    def __init__(self, package: str, defined_in: Sequence[str]) -> None:
        self._package = package
        self._defined_in = frozenset(defined_in)
        self._found: dict[tuple[str, str], tuple[K, ...]] = {}
        self._of_class: dict[type[AbstractOperator], tuple[K, ...]] = {}
        self._tables: dict[str, Mapping[str, K]] = {}

    def __getitem__(self, op: AbstractOperator) -> tuple[K, ...]:
        """The kernels for an operator; empty without such a module."""
        known = self._of_class.get(type(op))
        if known is not None:
            return known
        key = op.package, op.stem
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._load(*key)
        self._of_class[type(op)] = found
        return found

    def _load(self, package: str, stem: str) -> tuple[K, ...]:
        folder = self._package if package in self._defined_in else f"{self._package}.{package}"
        if stem.startswith("_"):
            return ()
        kernels = self._content(folder, stem, tuple | list)
        if kernels is None:
            if folder not in self._tables:
                self._tables[folder] = self._content(folder, "_table", Mapping) or {}
            kernels = [self._tables[folder][stem]] if stem in self._tables[folder] else ()
        for one in kernels:
            if not isinstance(one, Kernel):
                hint = "accepted: instances of Kernel, such as KERNELS = (Mine(),)"
                raise PluginError(f"{folder}.{stem}: KERNELS has {one!r}", hint=hint)
        return tuple(kernels)

    def _content(self, folder: str, name: str, kind: Any) -> Any:
        """`KERNELS` of a module of this kind; None without the module."""
        module = f"{folder}.{name}"
        try:
            kernels = getattr(importlib.import_module(module), "KERNELS", None)
        except ModuleNotFoundError as error:
            if error.name != module and (error.name != folder or folder == self._package):  # one that the module imports
                raise
            return None
        if not isinstance(kernels, kind):
            raise PluginError(f"{module} has no KERNELS", hint="define KERNELS, the kernels in the order in which they are tried")
        return kernels
