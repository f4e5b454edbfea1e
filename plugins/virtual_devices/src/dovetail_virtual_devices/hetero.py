"""HETERO: each node on one of the devices listed."""

from collections.abc import Mapping
from typing import Any

from dovetail.hookspecs import hookimpl
from dovetail.virtual import Session, Targets, VirtualDevice
from dovetail_virtual_devices.names import listed
from dovetail_virtual_devices.options import HeteroOptions
from dovetail_virtual_devices.placement import Placer, first_accepting, least_transfer, pipeline, read_pins

__all__ = ["Hetero", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"

_HOW = {"LEAST_TRANSFER": least_transfer, "FIRST_ACCEPTS": first_accepting, "PIPELINE_PARALLEL": pipeline}


class Hetero(VirtualDevice):
    """`HETERO:A,B`: the nodes of a model on several devices. The properties go to the first."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        """All devices listed, which run a model together. With PIPELINE_PARALLEL as many requests overlap as there are."""
        options, rest = HeteroOptions.read(properties)
        names = listed(session, "HETERO", arguments)
        infos = {name: session.info(name) for name in names}
        known = {key: name for name in reversed(names) for key in (infos[name].type, name)}
        pins = read_pins(known, options.AFFINITIES or {})
        if options.MODEL_DISTRIBUTION_POLICY == "PIPELINE_PARALLEL" and "NUM_STREAMS" not in rest:
            rest["NUM_STREAMS"] = len(names)
        return (Targets(names, rest, place=Placer(infos, _HOW[options.MODEL_DISTRIBUTION_POLICY], pins)),)


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Hetero()
