"""Builds graphs in code: for frontends, compositions and tests."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dovetail.errors import GraphError, did_you_mean
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.model import Model
from dovetail.graph.post_ops import PostOp, PostOps
from dovetail.graph.types import Dim, TensorType, as_constant
from dovetail.names import printable, some, unique_name

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """Collects inputs, constants and nodes, and hands out unique names.

    Example::

        g = GraphBuilder()
        x = g.input("x", "float32", ["N", 3])
        y = g.node(Relu(), x)
        model = g.model(outputs=[y])

    `scope` is put before every name that the builder invents: the nodes of a composition are called `rnn_cell/tanh`.
    `outer` are values from outside that nodes may read, with their types. A builder with a scope and without `outer` is for a
    sub-graph: its nodes may read any name, which the graph around it has to define.
    """

    def __init__(self, scope: str = "", outer: Mapping[str, TensorType] | None = None) -> None:
        self._scope = f"{scope}/" if scope else ""
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._constants: dict[str, NDArray[Any]] = {}
        self._types: dict[str, TensorType] = dict(outer or {})
        self._is_open = bool(scope) and outer is None
        self._taken: set[str] = set()
        self._values: set[str] = set()
        self._counts: dict[str, int] = {}

    def input(self, name: str, dtype: DType | str, shape: Sequence[Dim] | None) -> str:
        """Declare a graph input. Raises `GraphError` when the name is taken."""
        if name in self._types or name in self._taken:
            raise GraphError(f"the name {name!r} is defined twice")
        self._types[name] = TensorType(DType.of(dtype), None if shape is None else tuple(shape))
        self._inputs.append(name)
        self._taken.add(name)
        return name

    def constant(self, value: ArrayLike, dtype: DType | str | None = None, name: str = "constant") -> str:
        """Add a constant (copied unless it is an array already) and return its name."""
        array = np.asarray(value, dtype=None if dtype is None else DType.of(dtype).numpy)
        unique = self._unique(name)
        self._constants[unique] = as_constant(array)
        self._types[unique] = TensorType.of(self._constants[unique], known=True)
        return unique

    def type_of(self, name: str) -> TensorType | None:
        """The type of an input, constant or outer value; None for `""`. Raises `KeyError` for a node's output."""
        return self._types[name] if name else None

    def given(self, name: str) -> TensorType:
        """As `type_of`, for an input that the operator requires."""
        found = self.type_of(name)
        assert found is not None, "a required input is left out"
        return found

    @overload
    def node(self, op: AbstractOperator, *inputs: str, name: str = ..., post_ops: Iterable[PostOp] = ...) -> str: ...

    @overload
    def node(
        self, op: AbstractOperator, *inputs: str, name: str = ..., outputs: Sequence[str] | int, post_ops: Iterable[PostOp] = ...
    ) -> Any: ...

    def node(
        self,
        op: AbstractOperator,
        *inputs: str,
        name: str = "",
        outputs: Sequence[str] | int = (),
        post_ops: Iterable[PostOp] = (),
    ) -> Any:
        """Add a node and return its output name, or a tuple of names when it has several outputs.

        Type checkers see one name unless `outputs` is given. `""` leaves an optional input out. Without `outputs` the node has
        the outputs that are not optional, one if all are or if the operator has any number of outputs; with a number so many,
        named by the builder: `a, b = g.node(Split(num_outputs=2), x, outputs=2)`; with names those (`""` leaves one out).
        `post_ops` (a `PostOps`, which is copied) are applied to output 0 before it is stored; their operands are names of values.
        Raises `GraphError` for an input that is not defined yet and for an output that is defined already.
        """
        if isinstance(op, type):
            raise GraphError(f"a node's operator is the class {op.__name__}", hint=f"accepted: an object, {op.__name__}(...)")
        for value in inputs:
            if not isinstance(value, str):
                raise GraphError(
                    f"node {name or op.stem!r} reads {value!r:.60} ({type(value).__name__})",
                    hint="inputs are names: those that input, constant and node return, one for each output",
                )
            if not self._is_defined(value):
                raise GraphError(f"node {name or op.stem!r} reads {value!r:.60}, which is not defined", hint=self._defined(value))
        given = () if isinstance(outputs, int) else tuple(outputs)
        for number, output in enumerate(given):
            if output and (output in self._taken or output in given[:number]):
                raise GraphError(f"node {name or op.stem!r}: the output name {output!r} is defined twice")
        unique = self._unique(name or op.stem)  # may be the name of one of its outputs, as in files
        count = outputs if isinstance(outputs, int) else max(1, sum(not port.optional for port in op.outputs))
        written = given or self._output_names(unique, count)
        self._taken.update(written)
        self._values.update(written)
        self._nodes.append(Node(unique, op, tuple(inputs), written, PostOps.copied(post_ops), (unique,)))
        return written if len(written) > 1 else written[0]

    def graph(self, outputs: Sequence[str], name: str = "graph") -> Graph:
        """The graph so far, with these outputs."""
        return Graph(tuple(self._nodes), tuple(self._inputs), tuple(outputs), dict(self._constants), dict(self._types), name)

    def model(self, outputs: Sequence[str], name: str = "graph") -> Model:
        """The graph so far as a model. Raises `GraphError` for an output that nothing defines."""
        if isinstance(outputs, str):
            raise GraphError(f"the outputs are one name, {outputs!r:.60}", hint=f"accepted: a list, [{outputs!r:.60}]")
        for output in outputs:
            if not isinstance(output, str) or not output or not self._is_defined(output):
                raise GraphError(f"the output {output!r:.60} is not defined", hint=self._defined(str(output)))
        return Model(self.graph(outputs, name), source=f"<{name}>")

    def _is_defined(self, value: str) -> bool:
        return not value or self._is_open or value in self._values or value in self._types

    def _defined(self, value: str) -> str:
        known = did_you_mean(value, [*self._types, *self._values])
        return known or "define it first, or give the builder of a sub-graph a scope: GraphBuilder('body')"

    def __repr__(self) -> str:
        scope = f" {printable(self._scope)}" if self._scope else ""
        return f"<GraphBuilder{scope}: {len(self._nodes)} nodes, inputs {some(self._inputs) or 'none'}>"

    def _output_names(self, node: str, count: int) -> tuple[str, ...]:
        if count == 1:
            return (self._reserve(f"{node}:0"),)
        return tuple(self._reserve(f"{node}:{i}") for i in range(count))

    def _unique(self, name: str) -> str:
        return self._reserve(self._scope + name)

    def _reserve(self, base: str) -> str:
        return unique_name(base, self._taken, self._counts)
