"""Cases of the operators: `<stem>.py` holds `cases(rng)`, an iterable of `dovetail.testing.Case`, or `CASES` that function.

`KINDS` has the nodes of random graphs, by operator name.
"""

from dovetail_ops_onnx.cases._random_graphs import KINDS
from dovetail_ops_onnx.cases._table import CASES

__all__ = ["CASES", "KINDS"]
