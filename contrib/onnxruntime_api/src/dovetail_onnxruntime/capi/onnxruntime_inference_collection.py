"""The classes of onnxruntime's Python layer."""

from dovetail_onnxruntime.binding import IOBinding
from dovetail_onnxruntime.session import InferenceSession, Session
from dovetail_onnxruntime.values import OrtDevice, OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session"]
