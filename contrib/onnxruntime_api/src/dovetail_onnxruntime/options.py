"""`SessionOptions` and `RunOptions`, and what of them becomes a property of dovetail."""

import os
from typing import Any, NoReturn

from dovetail_onnxruntime.absent import refuse
from dovetail_onnxruntime.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from dovetail_onnxruntime.noted import without_effect

__all__ = ["RunOptions", "SessionOptions"]


class _Options:
    """Typed attributes with defaults, and entries of text by key. Other attributes are refused, as onnxruntime does."""

    _defaults: dict[str, Any] = {}

    def __init__(self) -> None:
        self.__dict__.update(self._defaults, _entries={})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        kind = type(self._defaults[name])
        fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if not fits and not (kind is bool and isinstance(value, int)) and not (kind is int and hasattr(value, "__index__")):
            raise TypeError(
                f"{type(self).__name__}.{name}: incompatible function arguments: {value!r} ({type(value).__name__}); "
                f"accepted: {kind.__name__}"
            )
        self.__dict__[name] = kind(value)

    def _changed(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) != self._defaults[name]]


class SessionOptions(_Options):
    """Options of a session. `intra_op_num_threads`, free dimensions, the optimization level and profiling have an effect.

    The others are kept and can be read; a session that is made with one of them warns once, by name.
    """

    intra_op_num_threads: int
    inter_op_num_threads: int
    graph_optimization_level: GraphOptimizationLevel
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    profile_file_prefix: str
    optimized_model_filepath: str
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    use_deterministic_compute: bool
    use_per_session_threads: bool

    _defaults = {
        "intra_op_num_threads": 0,
        "inter_op_num_threads": 0,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "profile_file_prefix": "onnxruntime_profile_",
        "optimized_model_filepath": "",
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    _WITHOUT_EFFECT = (
        "inter_op_num_threads",
        "execution_mode",
        "execution_order",
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "use_deterministic_compute",
        "use_per_session_threads",
        "optimized_model_filepath",
    )

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_free_dimensions"] = {}

    @property
    def free_dimensions(self) -> dict[str, int]:
        """Symbol -> size, as given to `add_free_dimension_override_by_name`."""
        found: dict[str, int] = self.__dict__["_free_dimensions"]
        return found

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fix the size of a symbolic dimension of the inputs."""
        self.free_dimensions[dim_name] = int(dim_value)

    def add_free_dimension_override_by_denotation(self, dim_denotation: str, dim_value: int) -> None:
        """Has no effect: dimensions are read without their denotation."""
        without_effect("SessionOptions.add_free_dimension_override_by_denotation", "name the dimension instead")

    def add_session_config_entry(self, config_key: str, config_value: str) -> None:
        """Keep an entry; none has an effect."""
        self.__dict__["_entries"][str(config_key)] = str(config_value)

    def get_session_config_entry(self, config_key: str) -> str:
        """The entry of a key. Raises `RuntimeError` when there is none."""
        return _entry(self, "SessionOptions", config_key)

    def has_providers(self) -> bool:
        """False: providers are given to the session."""
        return False

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> NoReturn:
        """Raises: a library of kernels for onnxruntime cannot run here."""
        refuse("SessionOptions.register_custom_ops_library")

    def add_initializer(self, name: str, ort_value: Any) -> NoReturn:
        """Raises: see the list of what is not there."""
        refuse("SessionOptions.add_initializer")

    def add_external_initializers(self, names: Any, ort_values: Any) -> NoReturn:
        """Raises: see the list of what is not there."""
        refuse("SessionOptions.add_external_initializers")

    def note_without_effect(self) -> None:
        """Warn, once a process and option, of those that were set and mean nothing here."""
        for name in self._changed(self._WITHOUT_EFFECT):
            without_effect(f"SessionOptions.{name}")
        for key in self.__dict__["_entries"]:
            without_effect(f"session configuration entry {key!r}")


class RunOptions(_Options):
    """Options of a run. They are kept and can be read; `terminate` set before a run ends it at once."""

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool

    _defaults = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }

    def add_run_config_entry(self, config_key: str, config_value: str) -> None:
        """Keep an entry; none has an effect."""
        self.__dict__["_entries"][str(config_key)] = str(config_value)

    def add_active_adapter(self, adapter: Any) -> NoReturn:
        """Raises: see the list of what is not there."""
        refuse("RunOptions.add_active_adapter")

    def get_run_config_entry(self, config_key: str) -> str:
        """The entry of a key. Raises `RuntimeError` when there is none."""
        return _entry(self, "RunOptions", config_key)


def _entry(options: _Options, kind: str, key: str) -> str:
    entries: dict[str, str] = options.__dict__["_entries"]
    if key not in entries:
        raise RuntimeError(f"{kind} does not have configuration with key: {key}")
    return entries[key]
