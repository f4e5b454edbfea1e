"""`InferenceSession`: a model read and compiled by dovetail, with onnxruntime's methods."""

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

from numpy import ndarray

from dovetail import CompiledModel, Graph, Model, TensorType
from dovetail.errors import DovetailError, UnknownOption
from dovetail.op import UnboundOperator
from dovetail_onnxruntime import exceptions
from dovetail_onnxruntime.absent import refuses_absent
from dovetail_onnxruntime.arguments import ModelMetadata, NodeArg, metadata_of
from dovetail_onnxruntime.binding import IOBinding
from dovetail_onnxruntime.decoder import Bound, Decoder
from dovetail_onnxruntime.devices import OrtEpDevice, device_of_provider
from dovetail_onnxruntime.enums import GraphOptimizationLevel
from dovetail_onnxruntime.exceptions import Fail, InvalidArgument, ModelLoadCanceled, coded, failed_run, loading
from dovetail_onnxruntime.feeds import FeedReader, result
from dovetail_onnxruntime.initializers import with_initializers
from dovetail_onnxruntime.noted import without_effect
from dovetail_onnxruntime.options import RunOptions, SessionOptions
from dovetail_onnxruntime.profiling import Profile
from dovetail_onnxruntime.providers import CPU, core, device_of, get_all_providers, names_device, normalized
from dovetail_onnxruntime.values import OrtValue

__all__ = ["InferenceSession", "Session"]

_THREADS = "INFERENCE_NUM_THREADS"
_TWICE = (
    "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been configured with "
    "providers. InferenceSession will only use the providers passed to InferenceSession()."
)
_OPEN = (3, 131, 5)
"""Sizes for open dimensions when the shapes of outputs are asked for. Dimensions that the first two which fit the model do not
change are fixed: the second is larger than what networks divide sizes by, the third for those that have room for fewer."""


class Session:
    """The methods of a session. `InferenceSession` makes one."""

    _compiled: CompiledModel
    _model_path: str | None
    _model_bytes: bytes | None
    _sess_options: SessionOptions

    def __init__(self, enable_fallback: bool = True) -> None:
        self._enable_fallback = enable_fallback
        self._fallback_providers = [CPU]

    # --- questions -------------------------------------------------------------------------------------------------

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._sess_options

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that are listed as inputs, so that a run may give others."""
        return self._overridable_meta

    def get_modelmeta(self) -> ModelMetadata:
        """Where the model comes from."""
        return self._model_meta

    def get_providers(self) -> list[str]:
        """The providers in use, by descending priority."""
        return list(self._chosen)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Provider -> its options as text."""
        return {name: {key: str(value) for key, value in options.items()} for name, options in self._chosen.items()}

    @property
    def _providers(self) -> list[str]:  # insightface and others read onnxruntime's private names
        return self.get_providers()

    @property
    def _provider_options(self) -> dict[str, dict[str, str]]:
        return self.get_provider_options()

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Compile the model again, for the device that these providers mean. Raises `RuntimeError` for one that nobody knows."""
        chosen = normalized(providers, provider_options)
        unknown = [name for name in map(_name_of, providers or ()) if name not in get_all_providers()]
        if unknown:
            raise RuntimeError(f"Unknown Provider Type: {unknown[0]}")
        self._chosen = chosen
        with loading(self._model_path, self._model_bytes):
            self._compile(self._compiled.model)

    def enable_fallback(self) -> None:
        """Allow what `disable_fallback` forbids: errors of providers fall back to the CPU."""
        self._enable_fallback = True

    def disable_fallback(self) -> None:
        """Raise errors of a device instead of going on with the CPU's."""
        self._enable_fallback = False

    @property
    def dovetail_device(self) -> str:
        """The name of the device that runs the model; onnxruntime has no such property."""
        return self._compiled.device

    # --- runs ------------------------------------------------------------------------------------------------------

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs of these names, or all of them, in order.

        Raises `ValueError` for missing inputs; `InvalidArgument` for unknown names and inputs that do not fit the model;
        `Fail` and `RuntimeException` for failures of the run.
        """
        return self._run(output_names, input_feed, run_options)

    def _run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
        on_device: bool = False,
        bound: Bound | None = None,
    ) -> list[Any]:
        """As `run`; with `on_device` the outputs stay in the memory of the device. `bound` is that for outputs."""
        indices = self._indices(output_names)
        if run_options is not None and run_options.terminate:
            raise coded(Fail, "Exiting due to terminate flag being set to true.")
        feed = self._feeds.read(input_feed)
        try:
            if self._profile is None:
                found = self._outputs_of(feed, on_device, bound)
            else:
                with self._profile.event("model_run"):
                    found = self._outputs_of(feed, on_device, bound)
        except DovetailError as error:
            raise failed_run(error) from error
        outputs = []
        for index in indices:  # in Python 3.11 a comprehension takes 0.1 us more
            value = found[index]
            outputs.append(value if type(value) is ndarray else result(value))
        return outputs

    def _outputs_of(self, feed: Mapping[str, Any], on_device: bool, bound: Bound | None) -> Any:
        found = None if self._decoder is None or on_device else self._decoder.run(feed, bound)
        return self._compiled(feed, on_device=on_device) if found is None else found

    def _indices(self, names: Sequence[str] | None) -> Sequence[int]:
        known = self._output_indices
        if not names:
            return self._all_indices
        if isinstance(names, str):
            raise TypeError(f"run(): incompatible function arguments: output_names is {names!r}; accepted: a list of names, None")
        for name in names:
            if name not in known:
                raise coded(InvalidArgument, f"Invalid output name:{name}")
        return [known[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in the background; then call `callback(outputs, user_data, error text)`. Inputs must not change until then."""

        def work() -> None:
            try:
                found, error = self.run(output_names, input_feed, run_options), ""
            except Exception as raised:  # the callback gets the text of any error
                callback([], user_data, str(raised))
            else:
                callback(found, user_data, error)

        threading.Thread(target=work, name="dovetail-run-async", daemon=True).start()

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: Any = None
    ) -> list[OrtValue]:
        """As `run`, with `OrtValue` objects."""
        return [OrtValue(value) for value in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A new binding of this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with the values of a binding of this session."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        iobinding.run()

    # --- profiling -------------------------------------------------------------------------------------------------

    def _event(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self._profile is None else self._profile.event(name)

    def end_profiling(self) -> str:
        """Write the profile; returns its path, `""` when profiling was not enabled."""
        return "" if self._profile is None else self._profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """The start of the profile in terms of `time.monotonic_ns`."""
        return 0 if self._profile is None else self._profile.start_ns

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The device of each input: that of the first provider."""
        return [device_of_provider(next(iter(self._chosen)))] * len(self._inputs_meta)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Note that none has an effect."""
        for key in options:
            without_effect(f"dynamic option {key!r}")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Return, as onnxruntime does with providers that capture no graphs by number."""

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value of zeros for this session."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id)

    # --- making ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        options = self._sess_options
        options.note_without_effect()
        if options.is_load_cancelled:
            raise coded(ModelLoadCanceled, "Session load was canceled by the flag of its options.")
        self._profile = Profile(options.profile_file_prefix) if options.enable_profiling else None
        with loading(self._model_path, self._model_bytes):
            with self._event("model_loading"):
                model = self._read(options)
            with self._event("session_initialization"):
                self._compile(model)
        self._feeds = FeedReader(model.inputs, model.overridable)
        self._inputs_meta = [NodeArg(name, declared) for name, declared in model.inputs.items()]
        self._overridable_meta = [NodeArg(name, declared) for name, declared in model.overridable.items()]
        self._outputs_meta = _outputs(model)
        self._output_indices = {arg.name: index for index, arg in enumerate(self._outputs_meta)}
        self._all_indices = range(len(self._output_indices))
        self._model_meta = metadata_of(model)

    def _read(self, options: SessionOptions) -> Model:
        source = (self._model_bytes or b"") if self._model_path is None else self._model_path
        if options.initializers:
            source = with_initializers(source, options.initializers, options.external)
        model = core().read_model(source, "onnx")
        if options.optimized_model_filepath:
            _write(model, options.optimized_model_filepath)
        _check_operators(model.graph)
        sizes = options.free_dimensions
        if not sizes:
            return model
        shapes = {name: t.shape for name, t in model.inputs.items() if t.shape is not None}
        return model.reshape(
            {name: tuple(sizes.get(d, d) if isinstance(d, str) else d for d in shape) for name, shape in shapes.items()}
        )

    def _compile(self, model: Model) -> None:
        device, properties = device_of(self._chosen)
        if self._sess_options.graph_optimization_level is GraphOptimizationLevel.ORT_DISABLE_ALL:
            properties.setdefault("PASSES", _without_recognisers())
            properties.setdefault("FUSION", False)
        threads = self._sess_options.intra_op_num_threads
        try:
            self._compiled = _with_threads(model, device, properties, threads)
        except DovetailError as error:
            # A device that the program names is unlike a provider that onnxruntime may lack.
            if not self._enable_fallback or set(self._chosen) == {CPU} or names_device(self._chosen):
                raise
            without_effect(f"provider {next(iter(self._chosen))}", f"{device} failed, the CPU is used: {error}")
            self._chosen = {CPU: {}}
            self._compiled = _with_threads(model, "CPU", {}, threads)
        self._decoder = Decoder.of(self._compiled)


def _write(model: Model, path: str) -> None:
    """Write the model as it was read: passes are for devices."""
    if path.endswith(".ort"):
        raise coded(
            exceptions.NotImplemented,
            f"optimized_model_filepath is {path!r}; dovetail writes .onnx, not onnxruntime's own format",
        )
    core().write_model(model, path, "onnx")


def _name_of(provider: str | tuple[str, Any]) -> str:
    return provider if isinstance(provider, str) else provider[0]


@refuses_absent
class InferenceSession(Session):
    """A model that is ready to run. Sessions may be shared by threads; they pickle as what they were made from."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Read and compile a model from a path or its bytes. See `providers` for the devices that providers mean.

        Raises `TypeError` for other sources, `NoSuchFile`, `InvalidProtobuf`, `InvalidGraph`, `InvalidArgument` and `Fail` for
        models that cannot be used.
        """
        super().__init__(enable_fallback=int(kwargs.get("enable_fallback", 1)) == 1)
        if not isinstance(path_or_bytes, str | os.PathLike | bytes):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._model_bytes = path_or_bytes if isinstance(path_or_bytes, bytes) else None
        self._model_path = None if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        # onnxruntime takes any false value for none: programs pass {}.
        self._sess_options = sess_options or SessionOptions()
        if self._sess_options.has_providers():
            if providers or provider_options:
                warnings.warn(_TWICE, UserWarning, stacklevel=2)
            else:
                providers = self._sess_options.providers
        try:
            self._chosen = normalized(providers, provider_options)
        except ValueError as error:
            if not self._enable_fallback:
                raise
            without_effect("argument 'providers'", f"the CPU is used: {error}")
            self._chosen = {CPU: {}}
        self._load()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_model_path", "_model_bytes", "_sess_options", "_chosen", "_enable_fallback", "_fallback_providers")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._load()


def _with_threads(model: Model, device: str, properties: Mapping[str, Any], threads: int) -> CompiledModel:
    """Compiled with so many threads, where the device can be told how many; 0 leaves it to the device."""
    if threads > 0 and _THREADS not in properties:
        try:
            return core().compile_model(model, device, {**properties, _THREADS: threads})
        except UnknownOption:
            without_effect("SessionOptions.intra_op_num_threads", f"{device} takes no number of threads")
    return core().compile_model(model, device, properties)


def _without_recognisers() -> str:
    """The property PASSES that leaves out what the environment does, and every pass that recognises forms of operators."""
    found = [one.name for one in core().plugins.graph_passes({}) if one.stage == "recognise" and not one.essential]
    asked = os.environ.get("DOVETAIL_PASSES", "").split(",")
    return ",".join(dict.fromkeys([*filter(None, asked), *(f"-{name}" for name in found)]))


def _check_operators(graph: Graph) -> None:
    """Raise `UnknownOperator` when the session is made, as onnxruntime does, rather than at the first run."""
    for node in graph.nodes:
        if isinstance(node.op, UnboundOperator):
            core().plugins.candidates(node.op.domain, node.op.op_type, node.op.version)
        for inner in node.op.subgraphs:
            _check_operators(inner)


def _outputs(model: Model) -> list[NodeArg]:
    """The outputs. Dimensions that a file leaves open are numbers where these follow from the model, as in onnxruntime."""
    names = {size for one in model.inputs.values() for size in one.shape or ()}
    analyzed: list[list[Graph]] = []

    def finder(name: str, declared: TensorType) -> Callable[[], list[int | str | None]]:
        def find() -> list[int | str | None]:
            known = declared.shape
            if known is not None and all(isinstance(size, int) or (size is not None and size in names) for size in known):
                return list(known)
            if not analyzed:
                analyzed.append(list(islice(filter(None, (_analyzed(model, size) for size in _OPEN)), 2)))
            first, second = ([graph.types.get(name) for graph in analyzed[0]] + [None, None])[:2]
            if first is None or second is None or not first.is_static or not second.is_static:
                return list(known or ())
            open_sizes = [None] * len(first.dims) if known is None else known
            # A dimension that changes with the inputs is open.
            return [a if a == b else size for a, b, size in zip(first.dims, second.dims, open_sizes, strict=True)]

        return find

    declared = {name: _declared(model, name) for name in model.outputs}
    return [NodeArg(name, one, finder(name, one)) for name, one in declared.items()]


def _declared(model: Model, name: str) -> TensorType:
    found = model.graph.types.get(name)
    if found is None:
        analyzed = _analyzed(model, _OPEN[0])
        found = None if analyzed is None else analyzed.types.get(name)
        if found is None:
            raise coded(Fail, f"the type of output '{name}' is not known")
        return found.with_shape(None) if type(found) is TensorType else found
    return found


def _analyzed(model: Model, size: int) -> Graph | None:
    shapes = {name: t.shape for name, t in model.inputs.items() if t.shape is not None and not t.is_static}
    try:
        return core().analyze(
            model.reshape({name: tuple(d if isinstance(d, int) else size for d in shape) for name, shape in shapes.items()})
        )
    except DovetailError:
        return None  # these sizes do not fit the model
