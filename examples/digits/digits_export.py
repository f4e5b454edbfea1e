"""The trained network as an ONNX model: one node a layer, batch normalization kept, h-swish as `tim.vx::HSwish`."""

from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

OPSET = 17
IR_VERSION = 8  # the version of the file format that came with opset 17


class _Chain:
    """The nodes and initializers of layers that follow one another."""

    def __init__(self, source: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._last = source

    def add(self, op_type: str, *parameters: tuple[str, Tensor | None], domain: str = "", **attributes: Any) -> None:
        """Appends a node that reads the value so far and then `parameters`, stored as float32 initializers."""
        name = f"{op_type.lower()}_{sum(node.op_type == op_type for node in self.nodes)}"
        stored = [
            numpy_helper.from_array(tensor.detach().float().numpy(), f"{name}.{suffix}")
            for suffix, tensor in parameters
            if tensor is not None
        ]
        inputs = [self._last, *(tensor.name for tensor in stored)]
        self._last = f"{name}.output"
        self.nodes.append(helper.make_node(op_type, inputs, [self._last], name, domain=domain, **attributes))
        self.initializers.extend(stored)

    def end(self, name: str) -> None:
        """Gives the last value the name of the graph's output."""
        self.nodes[-1].output[0] = name


def _add_layer(chain: _Chain, layer: nn.Module) -> None:
    match layer:
        case nn.Conv2d():
            weights = ("weight", layer.weight), ("bias", layer.bias)
            pads = [*layer.padding, *layer.padding]
            chain.add("Conv", *weights, kernel_shape=layer.kernel_size, pads=pads, group=layer.groups)
        case nn.BatchNorm2d():
            names = ("weight", "bias", "running_mean", "running_var")
            chain.add("BatchNormalization", *((name, getattr(layer, name)) for name in names), epsilon=layer.eps)
        case nn.Hardswish():
            chain.add("HSwish", domain="tim.vx")
        case nn.ReLU():
            chain.add("Relu")
        case nn.MaxPool2d():
            chain.add("MaxPool", kernel_shape=[layer.kernel_size] * 2, strides=[layer.stride] * 2)
        case nn.Flatten():
            chain.add("Flatten", axis=1)
        case nn.Linear():
            chain.add("Gemm", ("weight", layer.weight), ("bias", layer.bias), transB=1)
        case nn.Softmax():
            chain.add("Softmax", axis=layer.dim)
        case _:
            raise TypeError(f"no ONNX node is known for layer {layer}; add a case to _add_layer")


def to_onnx(net: nn.Sequential, classes: int) -> onnx.ModelProto:
    """`net` in evaluation mode with a softmax at its end.

    Input "image": float32 [N, 1, 8, 8], 0..1. Output "probabilities": float32 [N, classes]. N is symbolic. ONNX's
    checker has accepted the result. Raises TypeError for a kind of layer that it does not know.
    """
    chain = _Chain("image")
    for layer in [*net, nn.Softmax(dim=1)]:
        _add_layer(chain, layer)
    chain.end("probabilities")
    graph = helper.make_graph(
        chain.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", classes])],
        chain.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("tim.vx", 1)]
    model = helper.make_model(graph, producer_name="examples/digits", opset_imports=opsets, ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model
