"""HETERO: each node on one of the devices listed."""

from collections.abc import Mapping
from typing import Any

from dovetail.hookspecs import hookimpl
from dovetail.virtual import Session, Targets, VirtualDevice
from dovetail_virtual_devices.names import listed

__all__ = ["Hetero", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"


class Hetero(VirtualDevice):
    """`HETERO:A,B`: each node on the first device that takes it. The properties go to the first."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        """All devices listed, which run a model together."""
        return (Targets(listed(session, "HETERO", arguments), properties),)


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Hetero()
