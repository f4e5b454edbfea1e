"""Elements into layers. Whatever the format does not know is an error that names file, line, and what is accepted."""

import re
from collections.abc import Iterable, Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.errors import FormatError, UsageError, did_you_mean
from dovetail.frontend import printable
from dovetail.op import Formula
from dovetail_gpu_opencl.custom_layers.markup import Element, malformed, parse
from dovetail_gpu_opencl.custom_layers.sources import Origin
from dovetail_gpu_opencl.custom_layers.spec import Argument, DataArgument, Define, Layer, Size, TensorArgument, WorkSizes

__all__ = ["FORMATS", "read"]

FORMATS = ("BFYX", "BYXF", "YXFB", "FYXB", "ANY")
_TYPES = ("int", "float", "int[]", "float[]")
_MANY = 1 << 30
_MOST_ARGUMENTS = 1024


@dataclass(frozen=True, slots=True)
class _Shape:
    """The content that an element may have: attributes, and children with the least and greatest number of each."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    children: Mapping[str, tuple[int, int]] | None = None


_SHAPES = {
    "CustomLayer": _Shape(
        ("name", "type", "version"),
        children={"Kernel": (1, 1), "Buffers": (1, 1), "CompilerOptions": (0, _MANY), "WorkSizes": (0, 1)},
    ),
    "Kernel": _Shape(("entry",), children={"Source": (1, _MANY), "Define": (0, _MANY)}),
    "Source": _Shape(("filename",)),
    "Define": _Shape(("name",), ("param", "type", "default")),
    "Buffers": _Shape(children={"Data": (0, _MANY), "Tensor": (1, _MANY)}),
    "Data": _Shape(("name", "arg-index")),
    "Tensor": _Shape(("arg-index", "type", "port-index"), ("format",)),
    "CompilerOptions": _Shape(("options",)),
    "WorkSizes": _Shape((), ("global", "local", "dim")),
}


def read(origin: Origin, *, may_be_empty: bool = False) -> Sequence[Layer]:
    """The layers of a configuration, in order: sibling roots, or all in one element around them, of whatever name.

    Raises `FormatError` with file and line for everything that the format does not know.
    """
    file = origin.name
    roots = parse(origin.text(), file)
    if len(roots) == 1 and roots[0].name not in _SHAPES and (roots[0].children or may_be_empty):
        around = roots[0]
        if around.attributes:
            what = f"<{printable(around.name)}> with attributes"
            raise malformed(file, around.line, what, f"<CustomLayer>, or one element around all. {_closest(around.name)}")
        roots = around.children
    if not roots and not may_be_empty:
        raise malformed(file, 1, "the file has no custom layer", "<CustomLayer> elements")
    seen: dict[str, int] = {}
    layers = []
    for root in roots:
        if root.name != "CustomLayer":
            raise malformed(file, root.line, f"<{printable(root.name)}> at the top", f"<CustomLayer>. {_closest(root.name)}")
        layer = _Reader(origin).layer(root)
        if layer.name in seen:
            raise malformed(
                file, root.line, f"a second layer {layer.name!r}; the first is in line {seen[layer.name]}", "one each"
            )
        seen[layer.name] = root.line
        layers.append(layer)
    return layers


def _closest(name: str) -> str:
    return did_you_mean(name, _SHAPES)


class _Reader:
    """Reads one layer."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._file = origin.name

    def layer(self, element: Element) -> Layer:
        """The layer of a `CustomLayer`."""
        self._check(element)
        name = self._word(element, "name", r"(?:[A-Za-z0-9_.\-]+::)?[^\s:]+", "an operator type, alone or as domain::type")
        self._one_of(element, "type", ("SimpleGPU",))
        self._one_of(element, "version", ("1",))
        kernel, buffers = self._child(element, "Kernel"), self._child(element, "Buffers")
        entry = self._word(kernel, "entry", r"[A-Za-z_]\w*", "the name of a kernel function")
        options = " ".join(self._line(o, "options") for o in element.children if o.name == "CompilerOptions")
        sizes = next((c for c in element.children if c.name == "WorkSizes"), None)
        work = WorkSizes(self._place(element)) if sizes is None else self._work_sizes(sizes)
        source = "".join(self._source(c) for c in kernel.children if c.name == "Source")
        defines = self._defines([c for c in kernel.children if c.name == "Define"])
        arguments = self._arguments(buffers)
        return Layer(
            self._place(element), self._origin.short, name, entry, source, defines, arguments, " ".join(options.split()), work
        )

    def _check(self, element: Element) -> None:
        """Attributes and children of this element and of those inside it."""
        shape = _SHAPES[element.name]
        known = (*shape.required, *shape.optional)
        for name in element.attributes:
            if name not in known:
                raise self._error(element, f"<{element.name}> has an attribute {printable(name)!r}", _suggested(name, known))
        for name in shape.required:
            if name not in element.attributes:
                raise self._error(element, f"<{element.name}> has no attribute {name!r}", f"with {', '.join(shape.required)}")
        allowed = shape.children or {}
        found = dict.fromkeys(allowed, 0)
        for child in element.children:
            if child.name not in allowed:
                inside = f"<{printable(child.name)}> inside <{element.name}>"
                raise self._error(child, inside, _suggested(child.name, allowed))
            found[child.name] += 1
            if found[child.name] > allowed[child.name][1]:
                raise self._error(child, f"a second <{child.name}> inside <{element.name}>", "one")
            self._check(child)
        for name, (least, _) in allowed.items():
            if found[name] < least:
                raise self._error(element, f"<{element.name}> has no <{name}>", "one" if allowed[name][1] == 1 else "one or more")

    def _source(self, element: Element) -> str:
        filename = self._line(element, "filename")
        if not filename.strip():
            raise self._error(element, "the attribute 'filename' is empty", "the name of a file with OpenCL C")
        text = self._origin.source(filename, element.line)
        return f"// Custom Layer Kernel {printable(filename, limit=1000)}\n{text}" + ("" if text.endswith("\n") else "\n")

    def _defines(self, elements: Sequence[Element]) -> tuple[Define, ...]:
        lines: dict[str, int] = {}
        defines = tuple(self._define(element) for element in elements)
        for element, define in zip(elements, defines, strict=True):
            name = re.split(r"\W", define.name, maxsplit=1)[0]
            if name in lines:
                raise self._error(element, f"a second Define {name!r}; the first is in line {lines[name]}", "each name once")
            lines[name] = element.line
        return defines

    def _define(self, element: Element) -> Define:
        name = self._line(element, "name")
        if not re.fullmatch(r"[A-Za-z_]\w*(?:[\s(].*)?", name.strip()):
            raise self._error(
                element, f"the attribute 'name' is {printable(name)!r}", "a C identifier, also with its value after it"
            )
        kind = self._one_of(element, "type", _TYPES) if "type" in element.attributes else ""
        default = self._line(element, "default") if "default" in element.attributes else None
        param = self._line(element, "param") if "param" in element.attributes else ""
        if "param" in element.attributes and not param.strip():
            raise self._error(element, "the attribute 'param' is empty", "the name of an operator's attribute")
        return Define(self._place(element), name.strip(), param.strip(), kind, default)

    def _arguments(self, buffers: Element) -> tuple[Argument, ...]:
        found: dict[int, tuple[Argument, int]] = {}
        for child in buffers.children:
            index = self._number(child, "arg-index")
            if index in found:
                raise self._error(
                    child, f"a second argument {index}; the first is in line {found[index][1]}", "each arg-index once"
                )
            found[index] = (self._data(child) if child.name == "Data" else self._tensor(child), child.line)
        missing = next((i for i in range(len(found)) if i not in found), None)
        if missing is not None:
            given = ", ".join(str(i) for i in sorted(found))
            raise self._error(buffers, f"the arguments are {given}: {missing} is missing", f"0 to {len(found) - 1}")
        arguments = [found[i] for i in range(len(found))]
        self._check_ports(buffers, arguments)
        return tuple(argument for argument, _ in arguments)

    def _check_ports(self, buffers: Element, arguments: Iterable[tuple[Argument, int]]) -> None:
        formats: dict[tuple[bool, int], str] = {}
        for argument, line in arguments:
            if not isinstance(argument, TensorArgument):
                continue
            port = argument.is_output, argument.port
            if argument.is_output and port in formats:
                raise malformed(self._file, line, f"output {argument.port} is bound twice", "each output once")
            if formats.setdefault(port, argument.format) != argument.format:
                both = f"input {argument.port} is bound as {formats[port]} and as {argument.format}"
                raise malformed(self._file, line, both, "one format for each port")
        if not any(is_output for is_output, _ in formats):
            raise self._error(buffers, "<Buffers> has no <Tensor> of type output", "one or more")

    def _data(self, element: Element) -> DataArgument:
        name = self._line(element, "name")
        if not name.strip():
            raise self._error(element, "the attribute 'name' is empty", "the name of a constant")
        return DataArgument(self._place(element), name)

    def _tensor(self, element: Element) -> TensorArgument:
        kind = self._one_of(element, "type", ("input", "output"))
        port = self._number(element, "port-index")
        formats = (*FORMATS, *(name.lower() for name in FORMATS))
        given = self._one_of(element, "format", formats) if "format" in element.attributes else "BFYX"
        return TensorArgument(self._place(element), kind == "output", port, given.upper())

    def _work_sizes(self, element: Element) -> WorkSizes:
        global_size = self._size(element, "global") if "global" in element.attributes else None
        local = element.attributes.get("local", "")
        local_size = self._size(element, "local") if local.strip() else None
        if local_size is not None and len(local_size.formulas) != (1 if global_size is None else len(global_size.formulas)):
            what = f"local={printable(local)!r} has another number of dimensions than the global size"
            raise self._error(element, what, "as many as the global size, one without")
        dim = element.attributes.get("dim", "output")
        match = re.fullmatch(r"output|input(?:[ ,](\d{1,4}))?", dim)
        if match is None:
            raise self._error(element, f"dim is {printable(dim)!r}", "output, input, or input,N")
        return WorkSizes(self._place(element), global_size, local_size, None if dim == "output" else int(match[1] or 0))

    def _size(self, element: Element, attribute: str) -> Size:
        text = element.attributes[attribute]
        items = text.split(",")
        if len(items) > 3:
            raise self._error(element, f"{attribute}={printable(text)!r} has {len(items)} sizes", "one to three")
        try:
            return Size(text, tuple(Formula.parse(item) for item in items))
        except UsageError as error:
            raise FormatError(f"{self._place(element)}: {attribute}: {error.message}", hint=error.hint) from None

    def _child(self, element: Element, name: str) -> Element:
        return next(child for child in element.children if child.name == name)

    def _line(self, element: Element, attribute: str) -> str:
        value = element.attributes[attribute]
        if any(c in value for c in "\n\r\0") or value.rstrip().endswith("\\"):
            raise self._error(element, f"the attribute {attribute!r} is {printable(value)!r}", "one line of text")
        return value

    def _word(self, element: Element, attribute: str, pattern: str, accepted: str) -> str:
        value = element.attributes[attribute]
        if not re.fullmatch(pattern, value):
            raise self._error(element, f"the attribute {attribute!r} is {printable(value)!r}", accepted)
        return value

    def _one_of(self, element: Element, attribute: str, accepted: Sequence[str]) -> str:
        value = element.attributes[attribute]
        if value not in accepted:
            raise self._error(element, f"the attribute {attribute!r} is {printable(value)!r}", _suggested(value, accepted))
        return value

    def _number(self, element: Element, attribute: str) -> int:
        value = element.attributes[attribute]
        if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) >= _MOST_ARGUMENTS:
            raise self._error(element, f"the attribute {attribute!r} is {printable(value)!r}", f"0 to {_MOST_ARGUMENTS - 1}")
        return int(value)

    def _place(self, element: Element) -> str:
        return f"{self._file}:{element.line}"

    def _error(self, element: Element, what: str, accepted: str) -> FormatError:
        return malformed(self._file, element.line, what, accepted)


def _suggested(word: str, known: Iterable[str]) -> str:
    names = [*known]
    closest = did_you_mean(word, names)
    return ", ".join(names) + (f". {closest}" if closest.startswith("Did") else "") if names else "nothing"
