"""Graph passes: what authors of passes import.

A pass is a pure function with a name and a stage; plugins give theirs by the hook `dovetail_graph_passes`::

    from dovetail.passes import GraphPass

    def remove_debug(graph, context):
        ...
        return graph.replace(nodes=kept)

    GraphPass("remove_debug", "recognise", remove_debug)
"""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names
from dovetail.graph.rewriting import drop_dead_nodes, rename_reads, represented_by, with_constants
from dovetail.graph.schedule import schedule, stages
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.decompose import composition
from dovetail.passes.graph_pass import STAGES, GraphPass, PassContext

if TYPE_CHECKING:
    from dovetail.passes.inline import chosen_branch, inlined

__all__ = [
    "STAGES",
    "GraphPass",
    "PassContext",
    "chosen_branch",
    "composition",
    "drop_dead_nodes",
    "fold_constants",
    "inlined",
    "rename_reads",
    "represented_by",
    "schedule",
    "stages",
    "with_constants",
]

__getattr__ = lazy_names(__name__, {"dovetail.passes.inline": ("chosen_branch", "inlined")})  # few models have an If
