"""Symbols of onnxruntime that this package lacks, with the reason. The page of the docs is generated from this list."""

from functools import partial
from typing import Any, NoReturn, TypeVar

__all__ = ["ABSENT", "ABSENT_MODULES", "refuses_absent"]

T = TypeVar("T")

_TRAINING = "dovetail runs models; it does not train them"
_TOOLS = "dovetail runs models; where onnxruntime is installed, `import onnxruntime` gives its tools with sessions of dovetail"
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
    "OrtExternalInitializerInfo": "see ModelCompiler",
    "OrtMemoryInfo": _POOL,
    "OrtMemoryInfoDeviceType": _POOL,
    "OrtDeviceMemoryType": _POOL,
    "OrtSparseFormat": _SPARSE,
    "OrtSyncStream": "devices have no streams that programs can use",
    "SessionIOBinding": "use IOBinding",
    "SessionOptions.add_external_initializers_from_files_in_memory": "save the weights with the model",
    "SessionOptions.register_custom_ops_library": "operators of other domains are pip packages: see the tutorial on op packs",
    "SessionOptions.clear_ep_context_data_read_func": "see ModelCompiler",
    "SessionOptions.set_ep_context_data_read_func": "see ModelCompiler",
    "SessionOptions.set_provider_selection_policy_delegate": "choose among `get_ep_devices()` and call add_provider_for_devices",
    "RunOptions.add_active_adapter": _ADAPTER,
    "SparseTensor": _SPARSE,
    "OrtValue.as_sparse_tensor": _SPARSE,
    "OrtValue.ort_value_from_sparse_tensor": _SPARSE,
    "InferenceSession.get_tuning_results": "`dovetail tune` keeps what it finds in the cache",
    "InferenceSession.get_input_memory_infos": _POOL,
    "InferenceSession.get_output_memory_infos": _POOL,
    "InferenceSession.get_provider_graph_assignment_info": "`dovetail explain` shows the device of each node",
    "InferenceSession.run_with_ortvaluevector": "use run_with_ort_values",
    "InferenceSession.set_tuning_results": "`dovetail tune` keeps what it finds in the cache",
    "copy_tensors": "use OrtValue.update_inplace",
    "create_and_register_allocator": _POOL,
    "create_and_register_allocator_v2": _POOL,
    "print_debug_info": "`dovetail plugins doctor` reports the state of the installation",
    "register_execution_provider_library": _PLUGINS,
    "set_default_logger_callback": "dovetail logs through Python's `logging`, below the logger `dovetail`",
    "set_global_thread_pool_sizes": _POOL,
    "unregister_execution_provider_library": _PLUGINS,
}
"""Symbol -> why it is not there, and what to use instead."""

ABSENT_MODULES = {
    "backend": _TOOLS,
    "quantization": _TOOLS,
    "tools": _TOOLS,
    "training": _TRAINING,
    "transformers": _TOOLS,
}
"""Modules of the package `onnxruntime` that are not there."""


def refuses_absent(cls: type[T]) -> type[T]:
    """Give a class the methods of the list, which raise onnxruntime's `NotImplemented`."""
    for symbol in ABSENT:
        owner, _, name = symbol.partition(".")
        if name and owner == cls.__name__:
            setattr(cls, name, staticmethod(partial(_refuse, symbol)))
    return cls


def _refuse(symbol: str, *_: Any, **__: Any) -> NoReturn:
    from dovetail_onnxruntime import exceptions  # here, because the list alone imports nothing

    raise exceptions.coded(exceptions.NotImplemented, f"dovetail has no {symbol}: {ABSENT[symbol]}")
