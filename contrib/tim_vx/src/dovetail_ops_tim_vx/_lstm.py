"""One direction of an LSTM as standard operators, step by step: inputs, checks, and the unrolled graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.op import GraphBuilder, Operator, OperatorError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_tim_vx._activations import activate, clip
from dovetail_ops_tim_vx._sequence import Sequences, concat, split, zeros
from dovetail_ops_tim_vx._shapes import check_rank, check_shapes

__all__ = ["LstmCell", "LstmShape", "check_lstm_way", "run_lstm"]

GATES = ("i", "f", "c", "o")
EPSILON = 1e-8
"""TFLite's and TIM-VX's in layer normalization."""


@dataclass(frozen=True)
class LstmShape:
    """The sizes of one direction. `gates` are those computed: without an input gate it is 1 - forget."""

    cells: int
    outputs: int
    gates: tuple[str, ...]


@dataclass(frozen=True)
class LstmCell:
    """The attributes of a cell; a clip of 0 means no clip."""

    activation: str
    recurrent_activation: str
    cell_clip: float
    proj_clip: float
    forget_bias: float


def check_lstm_way(prefix: str, way: Mapping[str, TensorType | None], x: Sequences) -> LstmShape:
    """The sizes of one direction from the types of its inputs, whose names in messages begin with `prefix`.

    Raises `ShapeError` for types that do not fit, `OperatorError` for inputs that need others which are left out.
    """
    gates = GATES if way["W_i"] is not None else GATES[1:]
    _check_presence(prefix, way, gates)
    forget, projection = way["W_f"], way["W_proj"]
    assert forget is not None
    cells, _ = check_rank(f"{prefix}W_f", forget, ("cells", "input_size"))
    outputs = cells if projection is None else check_rank(f"{prefix}W_proj", projection, ("output_size", "cells"))[0]
    wanted: dict[str, tuple[int, ...]] = {"W_proj": (outputs, cells), "b_proj": (outputs,)}
    for gate in gates:
        wanted |= {f"W_{gate}": (cells, x.size), f"R_{gate}": (cells, outputs)}
        wanted |= {f"{kind}_{gate}": (cells,) for kind in ("P", "b", "N") if f"{kind}_{gate}" in way}
    wanted |= {"h": (x.batch, outputs), "c": (x.batch, cells)}
    check_shapes(*((prefix + name, way[name], dims) for name, dims in wanted.items()))
    return LstmShape(cells, outputs, gates)


def _check_presence(prefix: str, way: Mapping[str, TensorType | None], gates: Sequence[str]) -> None:
    if "i" not in gates:
        for name in ("R_i", "P_i", "b_i", "A_i", "N_i"):
            if way[name] is not None:
                raise OperatorError(
                    f"input '{prefix}{name}' is given without '{prefix}W_i'; without it the input gate is 1 - forget"
                )
    together = [[f"{kind}_{gate}" for gate in gates if f"{kind}_{gate}" in way] for kind in ("R", "P", "b", "A", "N")]
    for names in (*together, ["W_proj", "b_proj"][: 1 if way["b_proj"] is None else 2]):
        there = [name for name in names if way[name] is not None]
        missing = [name for name in names if way[name] is None]
        if there and missing:
            raise OperatorError(f"input '{prefix}{there[0]}' is given without '{prefix}{missing[0]}'")


def run_lstm(
    g: GraphBuilder,
    x: Sequences,
    inputs: str,
    way: Mapping[str, str],
    shape: LstmShape,
    cell: LstmCell,
    *,
    prefix: str,
    reverse: bool = False,
) -> tuple[str, str, list[str]]:
    """The last output and cell state, and the outputs in time order, from sequences `inputs`.

    In reverse the last step is computed first, and the states given back are those after the first.
    """
    return _Unrolled(g, x, way, shape, cell, prefix).run(inputs, reverse)


@dataclass(frozen=True)
class _Unrolled:
    g: GraphBuilder
    x: Sequences
    way: Mapping[str, str]
    shape: LstmShape
    cell: LstmCell
    prefix: str

    def run(self, inputs: str, reverse: bool) -> tuple[str, str, list[str]]:
        g, x = self.g, self.x
        biases = {gate: self._bias(gate) for gate in self.shape.gates}
        recurrent = self._joined("R")
        steps = x.steps(g, self._product(inputs, biases), f"{self.prefix}steps")
        h, c = self.way["h"], self.way["c"]
        outputs = [""] * x.time
        for t in x.order(reverse):
            total = self._node(Gemm(transB=True), h, recurrent, steps[t], name="recurrent") if h else steps[t]
            parts = split(g, total, len(self.shape.gates), 1, f"{self.prefix}gates")
            h, c = self._step(dict(zip(self.shape.gates, parts, strict=True)), c, biases)
            outputs[t] = h
        return h or zeros(g, (x.batch, self.shape.outputs), x.dtype), c or zeros(g, (x.batch, self.shape.cells), x.dtype), outputs

    def _step(self, gates: Mapping[str, str], c: str, biases: Mapping[str, str]) -> tuple[str, str]:
        """Output and cell state after a step, from the gates' sums of products and the cell state before (`""` is zero)."""
        cell = self.cell
        forget = self._gate("f", gates["f"], c, biases, cell.recurrent_activation) if c or "i" not in gates else ""
        if "i" in gates:
            entry = self._gate("i", gates["i"], c, biases, cell.recurrent_activation)
        else:
            entry = self._node(Sub(), self.g.constant(1.0, self.x.dtype, "one"), forget, name="input_gate")
        new = self._node(Mul(), entry, self._gate("c", gates["c"], "", biases, cell.activation), name="update")
        if c:
            new = self._node(Add(), self._node(Mul(), forget, c, name="kept"), new, name="cell")
        if cell.cell_clip:
            new = clip(self.g, new, -cell.cell_clip, cell.cell_clip, self.x.dtype, f"{self.prefix}cell_clip")
        exit_gate = self._gate("o", gates["o"], new, biases, cell.recurrent_activation)
        active = activate(self.g, cell.activation, new, self.x.dtype, f"{self.prefix}{cell.activation}")
        return self._projected(self._node(Mul(), exit_gate, active, name="output")), new

    def _gate(self, gate: str, total: str, c: str, biases: Mapping[str, str], activation: str) -> str:
        peephole, norm = self.way.get(f"P_{gate}", ""), self.way[f"N_{gate}"]
        if peephole and c:
            total = self._node(Add(), total, self._node(Mul(), c, peephole, name=f"peephole_{gate}"), name=f"total_{gate}")
        if norm:
            total = self._node(LayerNormalization(epsilon=EPSILON), total, norm, biases[gate], name=f"norm_{gate}")
        return activate(self.g, activation, total, self.x.dtype, f"{self.prefix}gate_{gate}")

    def _projected(self, output: str) -> str:
        if not self.way["W_proj"]:
            return output
        bias = [self.way["b_proj"]] if self.way["b_proj"] else []
        output = self._node(Gemm(transB=True), output, self.way["W_proj"], *bias, name="projection")
        limit = self.cell.proj_clip
        return clip(self.g, output, -limit, limit, self.x.dtype, f"{self.prefix}proj_clip") if limit else output

    def _product(self, inputs: str, biases: Mapping[str, str]) -> str:
        """X W^T of all steps and gates at once, with the biases unless they come after the normalization."""
        weights = self._joined("W")
        if self.way["A_f"]:
            # X W^T + aux A^T is one product, of the features side by side and the weights side by side.
            weights = concat(self.g, [weights, self._joined("A")], 1, f"{self.prefix}linked_weights")
        total = self._node(MatMul(), inputs, self._node(Transpose(perm=(1, 0)), weights, name="weights"), name="input")
        if self.way["N_f"]:
            return total
        return self._node(Add(), total, concat(self.g, list(biases.values()), 0, f"{self.prefix}biases"), name="biased")

    def _bias(self, gate: str) -> str:
        bias = self.way[f"b_{gate}"]
        if gate == "f" and self.cell.forget_bias:
            return self._node(Add(), bias, self.g.constant(self.cell.forget_bias, self.x.dtype, "forget_bias"), name="bias_f")
        return bias

    def _joined(self, kind: str) -> str:
        """The matrices of all gates, one below the other."""
        return concat(self.g, [self.way[f"{kind}_{gate}"] for gate in self.shape.gates], 0, f"{self.prefix}{kind}")

    def _node(self, op: Operator, *inputs: str, name: str) -> str:
        result: str = self.g.node(op, *inputs, name=self.prefix + name)
        return result
