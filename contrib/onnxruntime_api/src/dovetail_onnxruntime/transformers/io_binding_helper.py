"""`TypeHelper`: onnxruntime's names of types as those of NumPy and PyTorch. optimum's models read them."""

from typing import Any

import numpy as np

__all__ = ["TypeHelper"]

_NUMPY: dict[str, type] = {
    "bool": bool,
    "double": np.float64,
    "float": np.float32,
    "float16": np.float16,
    **{f"{sign}int{bits}": getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_TORCH = {"bool": "bool", "double": "float64", "float": "float32", "bfloat16": "bfloat16"}
"""PyTorch's names, where they are not onnxruntime's or not NumPy's."""


class TypeHelper:
    """Types of inputs and outputs, written as `tensor(float)`."""

    @staticmethod
    def get_input_type(ort_session: Any, name: str) -> str:
        """The type of an input. Raises `ValueError` for an unknown name."""
        return _type_of("input", ort_session.get_inputs(), name)

    @staticmethod
    def get_output_type(ort_session: Any, name: str) -> str:
        """The type of an output. Raises `ValueError` for an unknown name."""
        return _type_of("output", ort_session.get_outputs(), name)

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> Any:
        """NumPy's type. Raises `ValueError` where NumPy has none."""
        return _NUMPY[_element(ort_type, _NUMPY)]

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """PyTorch's type. Raises `ValueError` where it has none."""
        import torch

        name = _element(ort_type, {**_NUMPY, **_TORCH})
        return getattr(torch, _TORCH.get(name, name))


def _type_of(kind: str, args: Any, name: str) -> str:
    for arg in args:
        if arg.name == name:
            return str(arg.type)
    raise ValueError(f"{kind} name {name} not found")


def _element(ort_type: str, known: dict[str, Any]) -> str:
    name = ort_type.removeprefix("tensor(").removesuffix(")")
    if ort_type != f"tensor({name})" or name not in known:
        raise ValueError(f"{ort_type} not found in map")
    return name
