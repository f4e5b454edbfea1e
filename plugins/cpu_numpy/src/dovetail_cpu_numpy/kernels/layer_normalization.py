"""LayerNormalization."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernels._normalized_rows import NormalizedRows


class CentredRows(NormalizedRows):
    """Without the statistics as results."""

    centred = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        if node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.ATTRIBUTE, "the statistics are requested")
        return super().refuse(node)


KERNELS = (CentredRows(),)
