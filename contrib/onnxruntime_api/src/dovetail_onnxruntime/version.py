"""The version of onnxruntime whose interface this package has."""

__all__ = ["__version__"]

__version__ = "1.32.0"
"""Programs compare it. The version of the package is that of the distribution dovetail-onnxruntime-api."""
