"""HETERO: each node on one of the devices listed."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.errors import did_you_mean
from dovetail.hookspecs import hookimpl
from dovetail.virtual import Graph, Model, Session, Targets, VirtualDevice
from dovetail_virtual_devices.names import listed
from dovetail_virtual_devices.options import HeteroOptions
from dovetail_virtual_devices.placement import Placer, first_accepting, least_transfer, pipeline, read_pins

__all__ = ["Hetero", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"

log = logging.getLogger("dovetail")

_HOW = {"LEAST_TRANSFER": least_transfer, "FIRST_ACCEPTS": first_accepting, "PIPELINE_PARALLEL": pipeline}


class Hetero(VirtualDevice):
    """`HETERO:A,B`: the nodes of a model on several devices. The properties go to the first."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        """All devices listed, which run a model together. In a pipeline two requests for each keep them busy: one that the device
        computes, and one whose values it sends or receives."""
        options, rest = HeteroOptions.split(properties)
        names = listed(session, "HETERO", arguments)
        infos = {name: session.info(name) for name in names}
        known = {key: name for name in reversed(names) for key in (infos[name].type, name)}
        how, given = _HOW[options.MODEL_DISTRIBUTION_POLICY], options.AFFINITIES or {}
        own = read_pins(known, given)
        in_stages = options.MODEL_DISTRIBUTION_POLICY == "PIPELINE_PARALLEL" and "NUM_STREAMS" not in rest

        def placer(of_model: Mapping[str, str]) -> Placer:
            return Placer(infos, how, {**read_pins(known, of_model), **own})

        return (Targets(names, rest, place=placer, requests=2 * len(names) if in_stages else 0),)

    def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> None:
        """Warn of affinities of nodes that the model does not have, and leave the compilation to the session."""
        given = HeteroOptions.split(properties)[0].AFFINITIES
        known = list(_names(model.graph)) if given else []  # the nodes of a model with stored plans are read when they are needed
        for name in given or {}:
            if name not in known:
                log.warning(
                    "HETERO: AFFINITIES has %r, which %s does not have. %s", name, model.source, did_you_mean(name, known)
                )


def _names(graph: Graph) -> Iterator[str]:
    """The names of all nodes, those of sub-graphs too."""
    for node in graph.nodes:
        yield node.name
        for inner in node.op.subgraphs:
            yield from _names(inner)


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Hetero()
