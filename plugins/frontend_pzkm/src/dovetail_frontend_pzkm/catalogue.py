"""The 46 layer types of a .pzkm file: attributes with their types, names of inputs where the format gives them.

The types follow Arm NN. What a file leaves empty has the default here; None is a default that depends on the layer.
"""

from dataclasses import dataclass
from typing import Any

from dovetail.frontend import FormatError, printable

__all__ = ["CATALOGUE", "ENUMS", "REFUSED", "LayerType", "layer_type"]

ENUMS: dict[str, tuple[str, ...]] = {
    "ActivationFunction": (
        *("Sigmoid", "TanH", "Linear", "ReLu", "BoundedReLu", "SoftReLu", "LeakyReLu"),
        *("Abs", "Sqrt", "Square", "Elu", "HardSwish", "Gelu"),
    ),
    "DataLayout": ("NCHW", "NHWC"),
    "PoolingAlgorithm": ("Max", "Average", "L2"),
    "PaddingMethod": ("IgnoreValue", "Exclude"),
    "OutputShapeRounding": ("Floor", "Ceiling"),
    "ResizeMethod": ("NearestNeighbor", "Bilinear"),
    "NormalizationAlgorithmChannel": ("Across", "Within"),
    "NormalizationAlgorithmMethod": ("LocalBrightness", "LocalContrast"),
}
"""Type -> its names, by number. A file holds a name, or the number."""


@dataclass(frozen=True)
class LayerType:
    """`attributes` maps each name to its type and default; `inputs` names the ports, () where files need no names."""

    name: str
    attributes: dict[str, tuple[str, Any]]
    inputs: tuple[str, ...] = ()
    output: str = "output"


_PADS = dict.fromkeys(("padTop", "padRight", "padBottom", "padLeft"), ("uint32", 0))
_STRIDES: dict[str, tuple[str, Any]] = {"strideX": ("uint32", None), "strideY": ("uint32", None)}
_LAYOUT: dict[str, tuple[str, Any]] = {"dataLayout": ("DataLayout", None)}
_WEIGHTED = ("input", "weights", "biases")
_CONV = {**_PADS, **_STRIDES, "dilationX": ("uint32", 1), "dilationY": ("uint32", 1), **_LAYOUT}
_VIEWS: dict[str, tuple[str, Any]] = {
    "concatAxis": ("uint32", None),
    "numViews": ("uint32", None),
    "numDimensions": ("uint32", None),
}
_LSTM = (
    *(f"inputTo{gate}Weights1" for gate in ("Forget", "Cell", "Output")),
    *(f"recurrentTo{gate}Weights1" for gate in ("Forget", "Cell", "Output")),
    *("forgetGateBias1", "cellBias1", "outputGateBias1"),
    *("inputToInputWeights1", "recurrentToInputWeights1", "cellToInputWeights1", "inputGateBias1"),
    *("projectionWeights1", "projectionBias1", "cellToForgetWeights1", "cellToOutputWeights1"),
    *(f"{gate}LayerNormWeights1" for gate in ("input", "forget", "cell", "output")),
)
_QUANTIZED_LSTM = (
    *(f"inputTo{gate}Weights1" for gate in ("Input", "Forget", "Cell", "Output")),
    *(f"recurrentTo{gate}Weights1" for gate in ("Input", "Forget", "Cell", "Output")),
    *("inputGateBias1", "forgetGateBias1", "cellBias1", "outputGateBias1"),
)
_PLAIN = (
    *("DequantizeLayer", "DivisionLayer", "EqualLayer", "FloorLayer", "GatherLayer", "GreaterLayer", "InputLayer"),
    *("MaximumLayer", "MergeLayer", "MergerLayer", "MinimumLayer", "OutputLayer", "PreluLayer", "QuantizeLayer"),
    *("RsqrtLayer", "SubtractionLayer", "SwitchLayer"),
)

_LAYERS = (
    *(LayerType(name, {}) for name in _PLAIN),
    LayerType(
        "ActivationLayer", {"activationFunction": ("ActivationFunction", None), "a": ("float32", None), "b": ("float32", None)}
    ),
    LayerType("AdditionLayer", {}, ("A", "B"), "C"),
    LayerType("MultiplicationLayer", {}, ("A", "B"), "C"),
    LayerType("BatchNormalizationLayer", {"eps": ("float32", 1e-4), **_LAYOUT}, ("input", "mean", "variance", "beta", "gamma")),
    LayerType("BatchToSpaceNdLayer", {"blockShape": ("string", ""), "crops": ("string", ""), **_LAYOUT}),
    LayerType("ConcatLayer", _VIEWS),
    LayerType("ConstantLayer", {}, ("input",)),
    LayerType("Convolution2dLayer", _CONV, _WEIGHTED, "conv2d-output"),
    LayerType("DepthwiseConvolution2dLayer", _CONV, _WEIGHTED),
    LayerType(
        "DetectionPostProcessLayer",
        {
            **dict.fromkeys(("maxDetections", "maxClassesPerDetection", "detectionsPerClass", "numClasses"), ("uint32", 0)),
            **dict.fromkeys(("nmsScoreThreshold", "numIouThreshold", "scaleX", "scaleY", "scaleW", "scaleH"), ("float32", 0.0)),
            "useRegularNms": ("boolean", False),
        },
    ),
    LayerType("FullyConnectedLayer", {"transposeWeightsMatrix": ("boolean", False)}, _WEIGHTED),
    LayerType("L2NormalizationLayer", {"eps": ("float32", 1e-12), **_LAYOUT}),
    LayerType(
        "LstmLayer",
        {
            "activationFunc": ("uint32", 0),
            "clippingThresCell": ("float32", 0.0),
            "clippingThresProj": ("float32", 0.0),
            **{f"{n}Enabled": ("boolean", False) for n in ("cifg", "peephole", "projection", "layerNorm")},
        },
        ("input", *_LSTM),
    ),
    LayerType("MeanLayer", {"axis": ("uint32[]", ()), "keepDims": ("boolean", False)}),
    LayerType(
        "NormalizationLayer",
        {
            "normChannelType": ("NormalizationAlgorithmChannel", "Across"),
            "normMethodType": ("NormalizationAlgorithmMethod", "LocalBrightness"),
            "normSize": ("uint32", None),
            "alpha": ("float32", None),
            "beta": ("float32", None),
            **_LAYOUT,
        },
    ),
    LayerType("PadLayer", {"padList": ("uint32[]", None), "padValue": ("float32", 0.0)}),
    LayerType("PermuteLayer", {"dimMappings": ("string", None)}),
    LayerType(
        "Pooling2dLayer",
        {
            "poolType": ("PoolingAlgorithm", "Max"),
            **_PADS,
            "poolWidth": ("uint32", None),
            "poolHeight": ("uint32", None),
            **_STRIDES,
            "outputShapeRounding": ("OutputShapeRounding", "Floor"),
            "paddingMethod": ("PaddingMethod", "IgnoreValue"),
            **_LAYOUT,
        },
    ),
    LayerType("QuantizedLstmLayer", {}, ("input", *_QUANTIZED_LSTM)),
    LayerType("ReshapeLayer", {"targetShape": ("uint32[]", None)}),
    LayerType("ResizeBilinearLayer", {"targetWidth": ("uint32", None), "targetHeight": ("uint32", None), **_LAYOUT}),
    LayerType(
        "ResizeLayer",
        {
            "targetWidth": ("uint32", None),
            "targetHeight": ("uint32", None),
            "method": ("ResizeMethod", "NearestNeighbor"),
            **_LAYOUT,
        },
    ),
    LayerType("SoftmaxLayer", {"beta": ("float32", 1.0)}),
    LayerType("SpaceToBatchNdLayer", {"blockShape": ("string", ""), "padList": ("string", ""), **_LAYOUT}),
    LayerType("SpaceToDepthLayer", {"blockSize": ("uint32", None), **_LAYOUT}),
    LayerType("SplitterLayer", _VIEWS),
    LayerType("StackLayer", {"axis": ("uint32", 0), "numInputs": ("uint32", None), "inputShape": ("uint32[]", ())}),
    LayerType(
        "StridedSliceLayer",
        {
            **dict.fromkeys(("begin", "end", "stride"), ("int32[]", ())),
            **{f"{name}Mask": ("int32", 0) for name in ("begin", "end", "shrinkAxis", "ellipsis", "newAxis")},
            **_LAYOUT,
        },
    ),
    LayerType("TransposeConvolution2dLayer", {**_PADS, **_STRIDES, **_LAYOUT}, _WEIGHTED),
)

CATALOGUE: dict[str, LayerType] = {layer.name: layer for layer in _LAYERS}

REFUSED: dict[str, str] = {
    "BatchToSpaceNdLayer": "it has no ONNX operator; its crops are text of no fixed form",
    "SpaceToBatchNdLayer": "it has no ONNX operator; its pads are text of no fixed form",
    "DequantizeLayer": "a .pzkm file holds neither scale nor zero point",
    "QuantizeLayer": "a .pzkm file holds neither scale nor zero point",
    "DetectionPostProcessLayer": "it has no ONNX operator; split the model before it and select boxes in the application",
    "LstmLayer": "it is one time step, and the format gives its states no ports",
    "QuantizedLstmLayer": "it is one time step, and the format gives its states no ports, scales or zero points",
    "MergeLayer": "it joins branches of control flow, which the format does not describe further",
    "SwitchLayer": "it splits control flow, which the format does not describe further",
    "MergerLayer": "it is the old name of ConcatLayer, but here it has no axis",
}
"""Layer types without an ONNX counterpart, and what is known of them."""


def layer_type(name: str) -> LayerType:
    """The layer type of this name. Raises `FormatError` with those there are, or with what is known of one that is refused."""
    if name in REFUSED:
        raise FormatError(f"layers of type {name} cannot be translated: {REFUSED[name]}")
    if name not in CATALOGUE:
        from dovetail.errors import did_you_mean

        known = ", ".join(sorted(set(CATALOGUE) - set(REFUSED)))
        guess = did_you_mean(name, CATALOGUE)
        raise FormatError(f"the layer type '{printable(name)}' is unknown", hint=f"{guess} Known: {known}".strip())
    return CATALOGUE[name]
