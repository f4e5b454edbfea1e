"""The auxiliary input of bidirectional operators, by the rules of NNAPI."""

from collections.abc import Mapping

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_tim_vx._sequence import Sequences

__all__ = ["backward_input"]


def backward_input(x: Sequences, aux: TensorType | None, weights: Mapping[str, TensorType | None]) -> Sequences:
    """The geometry of what the backward direction reads: the auxiliary input, if it is there without weights of its own.

    `weights` are all those that go together, by input name. Raises `OperatorError` for some without the others or without the
    auxiliary input, `ShapeError` for an auxiliary input of another length or batch.
    """
    there = [name for name, given in weights.items() if given is not None]
    missing = [name for name, given in weights.items() if given is None]
    if aux is None:
        if there:
            raise OperatorError(f"input {there[0]!r} is given without 'aux'; accepted: both or none")
        return x
    if there and missing:
        raise OperatorError(f"input {there[0]!r} is given without {missing[0]!r}; accepted: all weights of 'aux' or none")
    second = Sequences.of("aux", aux, x.time_major)
    if (second.time, second.batch) != (x.time, x.batch):
        raise ShapeError(f"input 'aux' is {aux}; accepted: {x.time} time steps and batch {x.batch}, as in X")
    return x if there else second
