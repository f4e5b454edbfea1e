"""`NodeArg` and `ModelMetadata`: inputs, outputs and origin of a model, in onnxruntime's words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dovetail import Model
from dovetail.locks import cached_property
from dovetail.op import DType, MapType, OptionalType, SequenceType, TensorType

__all__ = ["ModelMetadata", "NodeArg", "metadata_of", "type_text"]

_TEXTS = {DType.FLOAT32: "float", DType.FLOAT64: "double", DType.FLOAT4_E2M1: "float4e2m1"}
_HEADER = "onnx."
_UNSET_VERSION = 2**63 - 1
"""The version that onnxruntime reports for a model without a version."""


class NodeArg:
    """An input or output: `name`, `type` such as `tensor(float)`, and `shape`, a list of ints, names and None."""

    def __init__(self, name: str, declared: TensorType, find_shape: Callable[[], list[int | str | None]] | None = None) -> None:
        self.name = name
        self.type = type_text(declared)
        self._declared = declared
        self._find_shape = find_shape

    @cached_property
    def shape(self) -> list[int | str | None]:
        """The dimensions; empty for what is not a tensor."""
        if self._find_shape is None or type(self._declared) is not TensorType:
            return list(self._declared.shape or ())
        return self._find_shape()

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


def type_text(declared: TensorType) -> str:
    """`tensor(float)`, `seq(map(int64,tensor(float)))`."""
    if isinstance(declared, MapType):
        return f"map({_name(declared.keys)},tensor({_name(declared.dtype)}))"
    if isinstance(declared, SequenceType):
        return f"seq({type_text(declared.items)})"
    if isinstance(declared, OptionalType):
        return f"optional(tensor({_name(declared.dtype)}))"
    return f"tensor({_name(declared.dtype)})"


def _name(dtype: DType) -> str:
    return _TEXTS.get(dtype, dtype.value.replace("float8_", "float8"))


@dataclass(frozen=True)
class ModelMetadata:
    """Where a model comes from, as its file says."""

    custom_metadata_map: Mapping[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


def metadata_of(model: Model) -> ModelMetadata:
    """The metadata of a model that the ONNX frontend read."""
    found = dict(model.metadata)
    header = {name: found.pop(_HEADER + name, "") for name in _FIELDS}
    return ModelMetadata(
        custom_metadata_map=found,
        description=header["doc_string"],
        domain=header["domain"],
        graph_description=header["graph_doc_string"],
        graph_name=model.graph.name,
        producer_name=header["producer_name"],
        version=int(header["model_version"] or _UNSET_VERSION),
    )


_FIELDS = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string", "graph_doc_string")
