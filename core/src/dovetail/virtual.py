"""All that the author of a virtual device imports: a device that runs models on other devices. See `dovetail.devices.virtual`."""

from dovetail.devices.contract import DeviceInfo, ExecutableRequest
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.virtual import Answers, Composite, Part, PartRequest, Placement, Session, Targets, VirtualDevice
from dovetail.devices.work_budget import WorkBudget, current_budget
from dovetail.graph.graph import Graph, Node
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType

__all__ = [
    "Accepted",
    "Answers",
    "Composite",
    "DeviceInfo",
    "ExecutableRequest",
    "Graph",
    "Model",
    "Node",
    "Part",
    "PartRequest",
    "Placement",
    "Reason",
    "Refusal",
    "Session",
    "Targets",
    "TensorType",
    "VirtualDevice",
    "WorkBudget",
    "current_budget",
]
