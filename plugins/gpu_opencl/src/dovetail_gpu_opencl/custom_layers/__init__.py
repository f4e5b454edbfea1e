"""Custom layers: kernels that users describe in XML files, in the format of the Inference Engine's GPU plugin.

`load` reads what the property `CONFIG_FILE` names, after the global file and `DOVETAIL_CUSTOM_LAYERS`.
"""

from dovetail_gpu_opencl.custom_layers.kernel import CustomLayerKernel
from dovetail_gpu_opencl.custom_layers.registry import Layers, load

__all__ = ["CustomLayerKernel", "Layers", "load"]
