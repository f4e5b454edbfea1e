"""Elementwise operators whose numbers are attributes."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression
from dovetail_gpu_opencl.source import accumulator, literal

__all__ = ["WithAttributes"]


class WithAttributes(Expression):
    """A C expression over `a` for floating-point inputs, with the attributes (numbers) in the places `{name}`."""

    def __init__(self, template: str, *, vectorizable: bool = False) -> None:
        super().__init__(None, vectorizable=vectorizable)
        self._template = template

    def text(self, node: TypedNode) -> str | None:
        source = node.inputs[0]
        if source is None or not source.dtype.is_float:
            return None
        acc = accumulator(source.dtype)
        return self._template.format(**{name: literal(float(getattr(node.op, name)), acc) for name in node.op.attributes})
