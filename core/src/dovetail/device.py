"""All that a device author imports: the contracts between the core and a device.

A device decides for each node whether it runs it (`supports`), and compiles a graph of nodes that it accepted (`compile`). How
it chooses kernels is its own affair; `choose` and `KernelTable` are the ready-made way: an ordered list of kernels for each
operator, in a module named after the operator's stem.
"""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names
from dovetail.devices.arenas import Arenas
from dovetail.devices.contract import Device, DeviceInfo, Executable, ExecutableRequest, NodeReport, StagedRun, Unavailable
from dovetail.devices.device_array import DeviceArray
from dovetail.devices.kernels import REFERENCE_KERNEL, Choice, Kernel, KernelTable, choose
from dovetail.devices.memory import MemoryPlan, plan_graph, plan_memory, plan_regions, share_storage, shares_again
from dovetail.devices.options import FLAG, OPERATOR_TYPES, DeviceOptions, Values, one_of
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import LayerConfig, TypedNode
from dovetail.devices.work_budget import WorkBudget, current_budget
from dovetail.errors import DeviceError, DeviceLost, DeviceUnavailable, OutOfMemory
from dovetail.evaluate.context import node_context, node_failure, quiet_context
from dovetail.evaluate.inference import padded
from dovetail.evaluate.reference import node_reference, run_reference
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Graph, KernelSource, Node
from dovetail.graph.layout import ANY, BFYX, BYXF, FYXB, NHWC, PLAIN, YXFB, Layout
from dovetail.graph.post_ops import Binary, Eltwise, PostOp, PostOps, Prelu, Sum
from dovetail.graph.reloadable import ConstantReaders, aligned, owner
from dovetail.graph.types import Shape, TensorType, read_only, same_bytes
from dovetail.internal.reorder import Reorder, ViewedReorder
from dovetail.operators.operator import Operator
from dovetail.phases import clock, phase

if TYPE_CHECKING:
    from dovetail.devices.hosting import HostedKernel
    from dovetail.internal.convert import Convert
    from dovetail.internal.copy import Copy
    from dovetail.internal.opaque import OpaqueOperator
    from dovetail.operators.host_kernel import HostConfig, HostKernel, PortConfig
    from dovetail.operators.kernels import OpenCLKernel
    from dovetail.tracing import CallsByNode, Mark, PartRecorder, Queued, by_node

__all__ = [
    "ANY",
    "BFYX",
    "BYXF",
    "FLAG",
    "FYXB",
    "NHWC",
    "OPERATOR_TYPES",
    "PLAIN",
    "REFERENCE_KERNEL",
    "YXFB",
    "AbstractOperator",
    "Accepted",
    "Arenas",
    "Binary",
    "CallsByNode",
    "Choice",
    "ConstantReaders",
    "Convert",
    "Copy",
    "DType",
    "Device",
    "DeviceArray",
    "DeviceError",
    "DeviceInfo",
    "DeviceLost",
    "DeviceOptions",
    "DeviceUnavailable",
    "Eltwise",
    "Executable",
    "ExecutableRequest",
    "Graph",
    "HostConfig",
    "HostKernel",
    "HostedKernel",
    "Kernel",
    "KernelSource",
    "KernelTable",
    "LayerConfig",
    "Layout",
    "Mark",
    "MemoryPlan",
    "Node",
    "NodeReport",
    "OpaqueOperator",
    "OpenCLKernel",
    "Operator",
    "OutOfMemory",
    "PartRecorder",
    "PortConfig",
    "PostOp",
    "PostOps",
    "Prelu",
    "Queued",
    "Reason",
    "Refusal",
    "Reorder",
    "Shape",
    "StagedRun",
    "Sum",
    "TensorType",
    "TypedNode",
    "Unavailable",
    "Values",
    "ViewedReorder",
    "WorkBudget",
    "aligned",
    "by_node",
    "choose",
    "clock",
    "current_budget",
    "node_context",
    "node_failure",
    "node_reference",
    "one_of",
    "owner",
    "padded",
    "phase",
    "plan_graph",
    "plan_memory",
    "plan_regions",
    "quiet_context",
    "read_only",
    "run_reference",
    "same_bytes",
    "share_storage",
    "shares_again",
]

__getattr__ = lazy_names(
    __name__,  # few operators have kernels for devices, and few runs are recorded
    {
        "dovetail.devices.hosting": ("HostedKernel",),
        "dovetail.internal.convert": ("Convert",),
        "dovetail.internal.copy": ("Copy",),
        "dovetail.internal.opaque": ("OpaqueOperator",),
        "dovetail.operators.host_kernel": ("HostConfig", "HostKernel", "PortConfig"),
        "dovetail.operators.kernels": ("OpenCLKernel",),
        "dovetail.tracing": ("CallsByNode", "Mark", "PartRecorder", "Queued", "by_node"),
    },
)
