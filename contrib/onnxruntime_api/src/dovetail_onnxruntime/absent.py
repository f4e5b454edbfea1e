"""Symbols of onnxruntime that this package lacks, with the reason. The page of the docs is generated from this list."""

from typing import NoReturn

__all__ = ["ABSENT", "ABSENT_MODULES", "refuse"]

_TRAINING = "dovetail runs models; it does not make, quantize or train them: use onnxruntime for that and run the result here"
_PLUGINS = "execution providers of onnxruntime are native libraries; devices of dovetail are pip packages"
_SPARSE = "dovetail has no sparse tensors at its edge; sparse initializers are read as dense ones"
_ADAPTER = "dovetail has no adapters that are loaded at the run: merge the adapter into the model"
_PACKAGE = "a model is a file; what depends on the device is chosen when it is compiled"
_POOL = "devices manage their own memory and threads"

ABSENT = {
    "AdapterFormat": _ADAPTER,
    "LoraAdapter": _ADAPTER,
    "ModelPackage": _PACKAGE,
    "ModelPackageComponentContext": _PACKAGE,
    "ModelPackageContext": _PACKAGE,
    "ModelPackageOptions": _PACKAGE,
    "ModelPackageWriteMode": _PACKAGE,
    "ModelCompiler": "a session compiles its model; `dovetail convert` writes models",
    "OrtArenaCfg": _POOL,
    "OrtCompileApiFlags": "see ModelCompiler",
    "OrtDeviceVendorId": _PLUGINS,
    "OrtEpAssignedNode": "`dovetail explain` shows the device of each node",
    "OrtEpAssignedSubgraph": "`dovetail explain` shows the device of each node",
    "OrtEpContextData": "see ModelCompiler",
    "OrtEpContextDataBuffer": "see ModelCompiler",
    "OrtEpDevice": _PLUGINS,
    "OrtExecutionProviderDevicePolicy": _PLUGINS,
    "OrtExternalInitializerInfo": "see ModelCompiler",
    "OrtHardwareDevice": _PLUGINS,
    "OrtHardwareDeviceType": _PLUGINS,
    "OrtMemoryInfo": _POOL,
    "OrtMemoryInfoDeviceType": _POOL,
    "OrtDeviceMemoryType": _POOL,
    "OrtSparseFormat": _SPARSE,
    "OrtSyncStream": "devices have no streams that programs can use",
    "SessionIOBinding": "use IOBinding",
    "SessionOptions.add_external_initializers": "save the weights with the model",
    "SessionOptions.add_initializer": "save the weights with the model",
    "SessionOptions.register_custom_ops_library": "operators of other domains are pip packages: see the tutorial on op packs",
    "RunOptions.add_active_adapter": _ADAPTER,
    "SparseTensor": _SPARSE,
    "OrtValue.as_sparse_tensor": _SPARSE,
    "OrtValue.ort_value_from_sparse_tensor": _SPARSE,
    "InferenceSession.get_tuning_results": "`dovetail tune` keeps what it finds in the cache",
    "InferenceSession.set_tuning_results": "`dovetail tune` keeps what it finds in the cache",
    "copy_tensors": "use OrtValue.update_inplace",
    "create_and_register_allocator": _POOL,
    "create_and_register_allocator_v2": _POOL,
    "get_ep_devices": _PLUGINS,
    "print_debug_info": "`dovetail plugins doctor` reports the state of the installation",
    "register_execution_provider_library": _PLUGINS,
    "set_default_logger_callback": "dovetail logs through Python's `logging`, below the logger `dovetail`",
    "set_global_thread_pool_sizes": _POOL,
    "unregister_execution_provider_library": _PLUGINS,
}
"""Symbol -> why it is not there, and what to use instead."""

ABSENT_MODULES = {
    "quantization": _TRAINING,
    "tools": _TRAINING,
    "training": _TRAINING,
    "transformers": f"but for `io_binding_helper.TypeHelper`: {_TRAINING}",
}
"""Modules of the package `onnxruntime` that are not there."""


def refuse(symbol: str) -> NoReturn:
    """Raise onnxruntime's `NotImplemented` for a symbol of the list."""
    from dovetail_onnxruntime import exceptions  # here, because the list alone imports nothing

    raise exceptions.coded(exceptions.NotImplemented, f"dovetail has no {symbol}: {ABSENT[symbol]}")
