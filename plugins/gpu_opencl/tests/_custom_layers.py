"""Shared by the tests of custom layers: kernels and XML as text, models as a frontend makes them, and compiling for one device.

Test modules are not a package, so they load this file by its place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceInfo, DType, Graph, Node, TensorType
from dovetail.graph import Model
from dovetail.op import UnboundOperator

INDEX = "(b * {0}_PITCHES[0] + f * {0}_PITCHES[1] + y * {0}_PITCHES[2] + x * {0}_PITCHES[3] + {0}_OFFSET)"
"""The element of a tensor at b, f, y, x, by its pitches."""


def source(name: str, body: str, *inputs: str, given: str = "OUTPUT0") -> str:
    """A kernel over the elements of the output: `body` sees b, f, y, x, and `AT_<TENSOR>`, the index into each tensor."""
    macros = "".join(f"#define AT_{t} {INDEX.format(t)}\n" for t in (*(f"INPUT{i}" for i in range(len(inputs))), "OUTPUT0"))
    arguments = "".join(f"__global const {kind}* in{i}, " for i, kind in enumerate(inputs))
    return f"""{macros}__kernel void {name}({arguments}__global OUTPUT0_TYPE* out) {{
      const int x = get_global_id(0), y = get_global_id(1);
      const int f = get_global_id(2) % {given}_DIMS[1], b = get_global_id(2) / {given}_DIMS[1];
      {body}
    }}
    """


def layer(
    op_type: str,
    entry: str,
    inputs: Sequence[str] = ("BFYX",),
    output: str = "BFYX",
    defines: str = "",
    more: str = "",
    work: str = 'global="X,Y,B*F"',
    file: str = "k.cl",
) -> str:
    bound = "".join(f'<Tensor arg-index="{i}" type="input" port-index="{i}" format="{f}"/>' for i, f in enumerate(inputs))
    return f"""<CustomLayer name="{op_type}" type="SimpleGPU" version="1">
    <Kernel entry="{entry}"><Source filename="{file}"/>{defines}</Kernel>
    <Buffers>{bound}<Tensor arg-index="{len(inputs)}" type="output" port-index="0" format="{output}"/>{more}</Buffers>
    <WorkSizes {work}/></CustomLayer>"""


class Session:
    """Compiles models for one device with custom layers from memory."""

    def __init__(self, info: DeviceInfo) -> None:
        self.device = info.name

    def compile(self, model: Model, xml: str, *cl: str, extensions: Sequence[Any] = (), **options: Any) -> Any:
        core = dovetail.Core(config=False)
        for extension in extensions:
            core.add_extension(extension)
        sources = {f"k{i or ''}.cl": text for i, text in enumerate(cl)}
        core.set_property("OPENCL", {"CONFIG_FILE": {"xml": xml, "sources": sources, "name": "test.xml"}})
        return core.compile_model(model, self.device, options)


def unknown(op_type: str, names: Sequence[str], output: str, domain: str = "my", **attributes: Any) -> Node:
    return Node(f"node_{output}", UnboundOperator(domain, op_type, 1, attributes), tuple(names), (output,))


def model(
    nodes: Sequence[Node],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, Sequence[Any]],
    constants: Mapping[str, NDArray[Any]] | None = None,
    dtype: DType = DType.FLOAT32,
) -> Model:
    """A model as a frontend makes it; `outputs` are the values whose types it declares. The last node writes its output."""
    arrays = dict(constants or {})
    types = {name: TensorType(dtype, tuple(shape)) for name, shape in (*inputs.items(), *outputs.items())}
    types |= {name: TensorType.of(array, known=True) for name, array in arrays.items()}
    last = nodes[-1].outputs[0]
    return Model(Graph(tuple(nodes), tuple(inputs), (last,), arrays, types), {"my": 1}, "test.model")


NEGATE = source("negate", "out[AT_OUTPUT0] = -in0[AT_INPUT0];", "float")
"""A kernel for any operator of one input."""
