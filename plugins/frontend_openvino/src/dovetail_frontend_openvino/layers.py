"""Elements to layers: ports, edges and sub-graphs, each checked on its own."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dovetail.frontend import Dim, DType, FormatError, GraphError, printable
from dovetail_frontend_openvino.markup import Element
from dovetail_frontend_openvino.text import dimension, element_type, integer

__all__ = ["Body", "Layer", "Net", "Port", "PortMapping", "read_net", "split_names"]

VERSIONS = (10, 11)
_STANDARD = re.compile(r"opset[0-9]+")
_NET_CHILDREN = frozenset({"layers", "edges"})
_BODIES = ("body", "then_body", "else_body")
_LAYER_CHILDREN = frozenset({"data", "input", "output", "port_map", "back_edges", "then_port_map", "else_port_map", *_BODIES})


@dataclass(frozen=True, slots=True)
class Port:
    """A port as declared. `dtype` and `shape` are None where the file leaves them open; a scalar's shape is None too."""

    id: int
    dtype: DType | None
    shape: tuple[Dim, ...] | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PortMapping:
    """How a port of a layer and a Parameter or Result of its body belong together. `axis` None: the value as a whole."""

    external: int
    internal: int
    axis: int | None
    start: int
    end: int
    stride: int
    part_size: int
    purpose: str
    line: int


@dataclass(frozen=True, slots=True)
class Body:
    """A sub-graph with what joins it to the layer around it. `back_edges` are pairs (Result, Parameter)."""

    net: "Net"
    inputs: tuple[PortMapping, ...]
    outputs: tuple[PortMapping, ...]
    back_edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One operation. `attributes` are those of its <data>, as text; `output_names` names a Result's tensor."""

    id: int
    name: str
    type: str
    opset: str
    attributes: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    bodies: Mapping[str, Body]
    output_names: tuple[str, ...]
    line: int

    @property
    def is_standard(self) -> bool:
        """True for an operation of an opsetN, False for one of an extension."""
        return bool(_STANDARD.fullmatch(self.opset))

    def __str__(self) -> str:
        return f"line {self.line}: layer '{printable(self.name)}' ({printable(self.opset)} {printable(self.type)})"


@dataclass(frozen=True, slots=True)
class Net:
    """A graph: layers by id, and for each input port (layer, port) the output port that feeds it."""

    name: str
    layers: Mapping[int, Layer]
    edges: Mapping[tuple[int, int], tuple[int, int]]


def read_net(root: Element) -> tuple[Net, int]:
    """The main graph and the version of the IR. Raises `FormatError`, `GraphError`."""
    if root.tag != "net":
        raise FormatError(
            f"line {root.line}: the root element is <{printable(root.tag)}>, not <net>", hint="this XML is not an IR"
        )
    version = integer(root.required("version"), f"line {root.line}: the version of <net>")
    if version not in VERSIONS:
        raise FormatError(
            f"line {root.line}: the IR version is {version}",
            hint="accepted: 10 and 11; older files must be converted again by a release of OpenVINO from 2020 or later",
        )
    return _read_graph(root), version


def _read_graph(root: Element) -> Net:
    for child in root.children:
        if child.tag not in _NET_CHILDREN:
            raise FormatError(
                f"line {child.line}: <{printable(child.tag)}> in <{root.tag}>", hint="accepted: layers, edges, rt_info"
            )
    holder = root.child("layers")
    if holder is None:
        raise FormatError(f"line {root.line}: <{root.tag}> has no <layers>", hint="is the file complete?")
    layers: dict[int, Layer] = {}
    for item in holder.children:
        _expect(item, "layer", "layers")
        layer = _read_layer(item)
        if layer.id in layers:
            raise GraphError(f"{layer}: the id {layer.id} is that of line {layers[layer.id].line} already")
        layers[layer.id] = layer
    return Net(printable(root.attributes.get("name", "")) or "graph", layers, _read_edges(root.child("edges"), layers))


def _read_edges(holder: Element | None, layers: Mapping[int, Layer]) -> dict[tuple[int, int], tuple[int, int]]:
    edges: dict[tuple[int, int], tuple[int, int]] = {}
    for item in holder.children if holder is not None else ():
        _expect(item, "edge", "edges")
        names = ("from-layer", "from-port", "to-layer", "to-port")
        source, source_port, target, target_port = (_integer(item, name) for name in names)
        _check_end(item, layers, source, source_port, "from")
        _check_end(item, layers, target, target_port, "to")
        if (target, target_port) in edges:
            raise GraphError(f"line {item.line}: a second edge to port {target_port} of layer {target}", hint="accepted: one")
        edges[target, target_port] = (source, source_port)
    return edges


def _check_end(item: Element, layers: Mapping[int, Layer], layer: int, port: int, end: str) -> None:
    found = layers.get(layer)
    if found is None:
        raise GraphError(f"line {item.line}: the edge goes {end} layer {layer}, which there is not")
    ports = [p.id for p in (found.outputs if end == "from" else found.inputs)]
    if port not in ports:
        kind = "output" if end == "from" else "input"
        shown = ", ".join(map(str, ports[:20])) or "none"
        raise GraphError(
            f"line {item.line}: the edge goes {end} port {port} of layer {layer}, '{printable(found.name)}', which has none such",
            hint=f"its {kind} ports: {shown}",
        )


def _read_layer(item: Element) -> Layer:
    where = f"line {item.line}: <layer>"
    name, kind = item.required("name"), item.required("type")
    if not kind or not name:
        raise FormatError(f"{where}: the {'name' if kind else 'type'} is empty")
    for child in item.children:
        if child.tag not in _LAYER_CHILDREN:
            raise FormatError(
                f"line {child.line}: <{printable(child.tag)}> in <layer>",
                hint=f"accepted: {', '.join(sorted(_LAYER_CHILDREN))}, rt_info",
            )
    data = item.child("data")
    inputs, outputs = _read_ports(item.child("input")), _read_ports(item.child("output"))
    ids = [port.id for port in (*inputs, *outputs)]
    if len(set(ids)) < len(ids):
        raise GraphError(f"{where} '{printable(name)}': two ports have one id: {', '.join(map(str, ids[:20]))}")
    return Layer(
        _integer(item, "id"),
        name,
        kind,
        item.required("version"),
        data.attributes if data is not None else {},
        inputs,
        outputs,
        _read_bodies(item),
        split_names(item.attributes.get("output_names", "")),
        item.line,
    )


def _read_ports(holder: Element | None) -> tuple[Port, ...]:
    return tuple(_read_port(item) for item in holder.children) if holder is not None else ()


def _read_port(item: Element) -> Port:
    _expect(item, "port", "input> or <output")
    where = f"line {item.line}: "
    precision = item.attributes.get("precision")
    return Port(
        _integer(item, "id"),
        element_type(precision, f"{where}the precision") if precision is not None else None,
        tuple(dimension(text, f"{where}a dimension") for text in item.dims) if item.dims else None,
        split_names(item.attributes.get("names", "")),
    )


def split_names(text: str) -> tuple[str, ...]:
    """Tensor names between commas; a comma in a name is written `\\,`."""
    return tuple(name.replace("\\,", ",") for name in re.split(r"(?<!\\),", text) if name)


def _read_bodies(item: Element) -> dict[str, Body]:
    found = {}
    for tag in _BODIES:
        body = item.child(tag)
        if body is None:
            continue
        prefix = tag.removesuffix("body")
        mapping = item.child(f"{prefix}port_map")
        mappings = mapping.children if mapping is not None else []
        for one in mappings:
            if one.tag not in ("input", "output"):
                raise FormatError(
                    f"line {one.line}: <{printable(one.tag)}> in <{prefix}port_map>", hint="accepted: input, output"
                )
        found[tag] = Body(
            _read_graph(body),
            tuple(_read_mapping(one) for one in mappings if one.tag == "input"),
            tuple(_read_mapping(one) for one in mappings if one.tag == "output"),
            tuple(_back_edges(item.child("back_edges"))),
        )
    return found


def _back_edges(holder: Element | None) -> Iterator[tuple[int, int]]:
    for item in holder.children if holder is not None else ():
        _expect(item, "edge", "back_edges")
        yield _integer(item, "from-layer"), _integer(item, "to-layer")


def _read_mapping(item: Element) -> PortMapping:
    def number(name: str, default: int) -> int:
        return _integer(item, name) if name in item.attributes else default

    external, purpose = _integer(item, "external_port_id"), item.attributes.get("purpose", "")
    known = {"input": "current_iteration", "output": "execution_condition"}[item.tag]
    if purpose not in ("", known) or (external == -1 and purpose != known):
        given = f"the purpose '{printable(purpose)}'" if purpose else "no purpose"
        raise FormatError(
            f"line {item.line}: <{item.tag}> of the port {external} has {given}",
            hint=f"accepted: '{known}', which the port -1 needs, and none for others",
        )
    return PortMapping(
        external,
        _integer(item, "internal_layer_id"),
        _integer(item, "axis") if "axis" in item.attributes else None,
        number("start", 0),
        number("end", -1),
        number("stride", 1),
        number("part_size", 1),
        purpose,
        item.line,
    )


def _integer(item: Element, name: str) -> int:
    return integer(item.required(name), f"line {item.line}: '{name}' of <{item.tag}>")


def _expect(item: Element, tag: str, holder: str) -> None:
    if item.tag != tag:
        raise FormatError(f"line {item.line}: <{printable(item.tag)}> in <{holder}>", hint=f"accepted: <{tag}>")
