"""The standard health service of gRPC, `grpc.health.v1`, which the probes of Kubernetes and load balancers ask.

`Check` only: clients take `UNIMPLEMENTED` for `Watch` as the protocol says, and do without.
https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from typing import Any

import grpc

from dovetail_kserve.messages import message_classes
from dovetail_kserve.plane import Plane

__all__ = ["HEALTH", "health_methods"]

HEALTH = "grpc.health.v1.Health"

_CLASSES = message_classes(
    "grpc.health.v1",
    # The status is an enumeration, which is stored as this type is.
    {"HealthCheckRequest": (("service", 1, "string"),), "HealthCheckResponse": (("status", 1, "int32"),)},
)
_SERVING, _NOT_SERVING = 1, 2


def health_methods(plane: Plane, served: str) -> dict[str, Any]:
    """The handlers of the methods by name.

    "", `readiness` and the service that is `served` ask whether the server is ready, `liveness` whether it answers, and other
    names for models.
    """

    async def check(request: Any, _: Any) -> Any:
        name = request.service
        if name in ("", "readiness", served):
            is_serving = await plane.ready()
        else:
            is_serving = name == "liveness" or await plane.model_ready(name)
        return _CLASSES["HealthCheckResponse"](status=_SERVING if is_serving else _NOT_SERVING)

    request, response = _CLASSES["HealthCheckRequest"], _CLASSES["HealthCheckResponse"]
    return {"Check": grpc.unary_unary_rpc_method_handler(check, request.FromString, response.SerializeToString)}
