"""The report of a plan as JSON."""

from typing import Any

from dovetail.device import Refusal
from dovetail.runtime import NodePlacement, PlanReport

__all__ = ["describe_report"]


def describe_report(report: PlanReport) -> dict[str, Any]:
    """Devices, kernels and reasons of a plan, as `dovetail explain --json` names them."""
    return {
        "passed_over": dict(report.passed_over),
        "notes": list(report.notes),
        "partitions": report.partitions,
        "reorders": report.reorders,
        "deferred": report.deferred,
        "memory": dict(report.memory),
        "seconds": dict(report.seconds),
        "nodes": [_node(node) for node in report.nodes],
    }


def _node(node: NodePlacement) -> dict[str, Any]:
    stop = node.post_op_stop
    return {
        "node": node.path,
        "operator": node.op,
        "device": node.device,
        "kernel": node.kernel,
        "provider": node.provider,
        "rule": node.rule,
        "origins": list(node.origins),
        "post_ops": list(node.post_ops),
        "stop": None if stop is None else {"node": stop[0], **_reason(stop[1])},
        "refusals": [{"by": by, **_reason(refusal)} for by, refusal in node.refusals],
    }


def _reason(refusal: Refusal) -> dict[str, str]:
    return {"reason": refusal.reason.value, "detail": refusal.detail}
