"""`SessionOptions` and `RunOptions`, and what of them becomes a property of dovetail."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail_onnxruntime.absent import refuses_absent
from dovetail_onnxruntime.devices import OrtEpDevice, OrtExecutionProviderDevicePolicy, providers_of
from dovetail_onnxruntime.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from dovetail_onnxruntime.exceptions import InvalidArgument, coded
from dovetail_onnxruntime.noted import without_effect
from dovetail_onnxruntime.providers import get_all_providers, is_available
from dovetail_onnxruntime.values import OrtValue

__all__ = ["RunOptions", "SessionOptions"]


class _Options:
    """Typed attributes with defaults, and entries of text by key. Other attributes are refused, as onnxruntime does."""

    _defaults: dict[str, Any] = {}
    """Name -> default: the annotated attributes of the class, and of those it is derived from."""

    def __init_subclass__(cls) -> None:
        own = {name: vars(cls)[name] for name in inspect.get_annotations(cls) if name in vars(cls)}
        cls._defaults = {**cls._defaults, **own}

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


@refuses_absent
class SessionOptions(_Options):
    """Options of a session. These have an effect: `intra_op_num_threads`, free dimensions, the optimization level, profiling,
    `optimized_model_filepath` and initializers.

    The others are kept and can be read; a session that is made with one of them warns once, by name.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

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
    )

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(
            _free_dimensions={}, _initializers={}, _external=set(), _providers={}, _policy=None, _is_cancelled=False
        )

    @property
    def free_dimensions(self) -> dict[str, int]:
        """Symbol -> size, as given to `add_free_dimension_override_by_name`."""
        found: dict[str, int] = self.__dict__["_free_dimensions"]
        return found

    @property
    def initializers(self) -> dict[str, OrtValue]:
        """Name -> value, as given to `add_initializer` and `add_external_initializers`."""
        found: dict[str, OrtValue] = self.__dict__["_initializers"]
        return found

    @property
    def external(self) -> set[str]:
        """The names given to `add_external_initializers`, which the model must have."""
        found: set[str] = self.__dict__["_external"]
        return found

    def add_initializer(self, name: str, ortvalue: OrtValue) -> None:
        """Let a value stand in place of the initializer of this name, in models that have one."""
        self.initializers[name] = ortvalue

    def add_external_initializers(self, names: Sequence[str], ortvalues: Sequence[OrtValue]) -> None:
        """As `add_initializer`, for several: those that models keep in other files, which need not be there."""
        if len(names) != len(ortvalues):
            raise coded(InvalidArgument, f"{len(names)} names and {len(ortvalues)} values; accepted: one value for each name")
        self.initializers.update(zip(names, ortvalues, strict=True))
        self.external.update(names)

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
        """The entry of a key. Raises `RuntimeError` for an unknown key."""
        return _entry(self, "SessionOptions", config_key)

    def add_provider(self, provider_name: str, provider_options: Mapping[str, str]) -> None:
        """Add a provider for sessions that are given none.

        Raises `RuntimeError` for an unknown one, `InvalidArgument` for one that means no device which is there.
        """
        if provider_name not in get_all_providers():
            raise RuntimeError(f"Unknown Provider Type: {provider_name}")
        if not is_available(provider_name):
            text = f"Failed to add provider of type '{provider_name}' to SessionOptions. Provider configuration is not supported."
            raise coded(InvalidArgument, text)
        self.__dict__["_providers"][provider_name] = dict(provider_options)

    def add_provider_for_devices(self, ep_devices: Sequence[OrtEpDevice], provider_options: Mapping[str, str]) -> None:
        """Add the provider of devices that `get_ep_devices` listed. Raises `InvalidArgument` unless they have one provider."""
        names = {device.ep_name for device in ep_devices}
        if len(names) != 1:
            text = (
                "All OrtEpDevice values in ep_devices must have the same execution provider."
                if names
                else "No devices were provided."
            )
            raise coded(InvalidArgument, text)
        self.add_provider(names.pop(), provider_options)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Let sessions that are given no provider choose one by this policy."""
        self.__dict__["_policy"] = OrtExecutionProviderDevicePolicy(policy)

    def has_providers(self) -> bool:
        """Whether providers were added, or a policy was set."""
        return bool(self.__dict__["_providers"]) or self.__dict__["_policy"] is not None

    @property
    def providers(self) -> list[tuple[str, dict[str, str]]]:
        """The providers that were added, or those that the policy chooses, with their options."""
        added: dict[str, dict[str, str]] = self.__dict__["_providers"]
        policy = self.__dict__["_policy"]
        return list(added.items()) if added or policy is None else [(name, {}) for name in providers_of(policy)]

    def set_load_cancellation_flag(self, value: bool) -> None:
        """With true: sessions that are made with these options end with `ModelLoadCanceled`."""
        self.__dict__["_is_cancelled"] = bool(value)

    @property
    def is_load_cancelled(self) -> bool:
        """The value that `set_load_cancellation_flag` was given."""
        return bool(self.__dict__["_is_cancelled"])

    def note_without_effect(self) -> None:
        """Warn, once a process and option, of those that were set and mean nothing here."""
        for name in self._changed(self._WITHOUT_EFFECT):
            without_effect(f"SessionOptions.{name}")
        for key in self.__dict__["_entries"]:
            without_effect(f"session configuration entry {key!r}")


@refuses_absent
class RunOptions(_Options):
    """Options of a run. They are kept and can be read; `terminate` set before a run ends it at once."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, config_key: str, config_value: str) -> None:
        """Keep an entry; none has an effect."""
        self.__dict__["_entries"][str(config_key)] = str(config_value)

    def get_run_config_entry(self, config_key: str) -> str:
        """The entry of a key. Raises `RuntimeError` for an unknown key."""
        return _entry(self, "RunOptions", config_key)


def _entry(options: _Options, kind: str, key: str) -> str:
    entries: dict[str, str] = options.__dict__["_entries"]
    if key not in entries:
        raise RuntimeError(f"{kind} does not have configuration with key: {key}")
    return entries[key]
