"""BidirectionalSequenceLstm of TIM-VX: two LSTMs over a sequence, one from its end, unrolled into standard operators."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dovetail.op import FLOATS, GraphBuilder, OperatorError, TensorType
from dovetail_ops_tim_vx._activations import check_activation
from dovetail_ops_tim_vx._auxiliary import backward_input
from dovetail_ops_tim_vx._base import RecurrentOperator
from dovetail_ops_tim_vx._lstm import GATES, LstmCell, LstmShape, check_lstm_way, run_lstm
from dovetail_ops_tim_vx._sequence import Sequences, concat
from dovetail_ops_tim_vx._shapes import check_shapes

V = TypeVar("V")

WAYS = ("fw", "bw")


def _ports() -> list[str]:
    """TIM-VX's order of inputs."""
    required = [f"{kind}_{gate}" for kind in "WR" for gate in GATES]
    optional = ["P_i", "P_f", "P_o"]
    own = [*required, *optional, *(f"b_{gate}" for gate in GATES), "W_proj", "b_proj"]
    ports = ["X", *(f"{way}_{name}" for way in WAYS for name in own)]
    ports += [f"{way}_{state}" for way in WAYS for state in "hc"]
    ports += ["aux", *(f"{way}_A_{gate}" for way in WAYS for gate in GATES)]
    return [*ports, *(f"{way}_N_{gate}" for way in WAYS for gate in GATES)]


def _is_optional(port: str) -> bool:
    kind, _, gate = port[3:].partition("_")
    return port != "X" and (gate not in ("f", "c", "o") or kind not in "WRb")


class BidirectionalSequenceLstm(RecurrentOperator):
    """An LSTM forwards (fw_) and backwards (bw_) over the same sequence; by the equations of TFLite and NNAPI.

    With h and c the states before, gate by gate: i, f, o = recurrent_activation(X W^T + h R^T + P c + b), of which o takes the
    new cell state; the new c = f c + i activation(X W_c^T + h R_c^T + b_c), limited to cell_clip; the output = o activation(c),
    which is the new h, after the projection W_proj output + b_proj, limited to proj_clip, if there is one.

    X [batch, time, input_size], or [time, batch, input_size] when `time_major`. W [cells, input_size], R [cells, output_size],
    peephole weights P, biases b and layer-norm coefficients N [cells], W_proj [output_size, cells], b_proj [output_size]; without
    a projection output_size is cells. h [batch, output_size], c [batch, cells]; left out they are zero.

    Without W_i (and R_i, b_i) the input gate is 1 - f. With N every gate's sum is normalised over the cells (epsilon 1e-8) and
    multiplied by N before its bias is added. `forget_bias` is added to b_f. A clip of 0 means no clip. `aux` is an auxiliary
    input as in NNAPI: with weights A [cells, aux_size] for both directions its product is added to that of X; without them the
    backward direction reads it in place of X.

    fw_Y and bw_Y are like X with output_size features, in time order; without `return_sequences` they are the last outputs
    [batch, output_size]. fw_h, fw_c, bw_h, bw_c are the last states; the backward ones are those after the first time step.

    Row-major shapes; TIM-VX counts dimensions the other way round. Inputs and outputs have its order. It never looks at the
    auxiliary inputs, lets o see the old cell state, and hands proj_clip to the kernel before the projection; there we follow
    TFLite.
    """

    inputs = tuple(f"{port}{'?' if _is_optional(port) else ''}: T" for port in _ports())
    outputs = tuple(f"{way}_{output}: T" for way in WAYS for output in ("Y", "h", "c"))
    types = {"T": FLOATS}

    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    forget_bias: float = 0.0
    time_major: bool = False
    return_sequences: bool = False

    def __post_init__(self) -> None:
        check_activation(self.activation)
        check_activation(self.recurrent_activation, "recurrent_activation")
        for name in ("cell_clip", "proj_clip"):
            if not getattr(self, name) >= 0:
                raise OperatorError(f"attribute {name!r} is {getattr(self, name)}; accepted: 0 (none) or more")

    def infer(self, *given: TensorType | None) -> tuple[TensorType, ...]:
        """Output, h and c of both directions. Raises `ShapeError` or `OperatorError` for inputs that do not fit."""
        x, shapes = self._check(given)
        X = TensorType(x.dtype, None)
        return tuple(
            X.with_shape(dims)
            for shape in shapes
            for dims in (
                x.shape(shape.outputs) if self.return_sequences else (x.batch, shape.outputs),
                (x.batch, shape.outputs),
                (x.batch, shape.cells),
            )
        )

    def compose(self, g: GraphBuilder, *given: str) -> Any:
        """Both directions, step by step."""
        x, shapes = self._check([g.type_of(name) for name in given])
        named = dict(zip(_ports(), given, strict=True))
        forward = backward = named["X"]
        if named["fw_A_f"]:
            forward = backward = concat(g, [named["X"], named["aux"]], 2, "linked")
        elif named["aux"]:
            backward = named["aux"]
        cell = LstmCell(self.activation, self.recurrent_activation, self.cell_clip, self.proj_clip, self.forget_bias)
        results: list[str] = []
        for way, inputs, shape in zip(WAYS, (forward, backward), shapes, strict=True):
            inner = _of_way(named, way)
            h, c, outputs = run_lstm(g, x, inputs, inner, shape, cell, prefix=f"{way}/", reverse=way == "bw")
            results += [x.joined(g, outputs, shape.outputs, f"{way}/outputs") if self.return_sequences else h, h, c]
        return tuple(results)

    def _check(self, given: Sequence[TensorType | None]) -> tuple[Sequences, tuple[LstmShape, LstmShape]]:
        """The geometry of X, and the sizes of both directions."""
        named = dict(zip(_ports(), given, strict=True))
        x = Sequences.of("X", named["X"], self.time_major)
        weights = {
            f"{way}_A_{gate}": named[f"{way}_A_{gate}"] for way in WAYS for gate in GATES if named[f"{way}_W_{gate}"] is not None
        }
        aux = named["aux"]
        read = (x, backward_input(x, aux, weights))
        forward, backward = (check_lstm_way(f"{way}_", _of_way(named, way), one) for way, one in zip(WAYS, read, strict=True))
        if aux is not None:
            for way, shape in zip(WAYS, (forward, backward), strict=True):
                size = (shape.cells, aux.dims[2])
                check_shapes(*((f"{way}_A_{gate}", named[f"{way}_A_{gate}"], size) for gate in GATES))
        return x, (forward, backward)


def _of_way(named: Mapping[str, V], way: str) -> dict[str, V]:
    """The inputs of one direction by their names without `fw_` or `bw_`."""
    return {name[3:]: value for name, value in named.items() if name.startswith(f"{way}_")}
