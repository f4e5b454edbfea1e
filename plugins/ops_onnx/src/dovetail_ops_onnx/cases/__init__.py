"""Cases of the operators: `<stem>.py` holds `cases(rng)`, an iterable of `dovetail.testing.Case`.

`KINDS` has the nodes of random graphs, by operator name.
"""

from dovetail_ops_onnx.cases._random_graphs import KINDS

__all__ = ["KINDS"]
