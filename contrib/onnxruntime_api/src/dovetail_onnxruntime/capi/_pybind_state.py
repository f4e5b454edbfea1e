"""The same names as `onnxruntime_pybind11_state`."""

from dovetail_onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403  # as onnxruntime's own module does
from dovetail_onnxruntime.capi.onnxruntime_pybind11_state import __all__ as __all__
from dovetail_onnxruntime.capi.onnxruntime_pybind11_state import __getattr__ as __getattr__
