"""The checks of an op pack: each operator as it is written, and each of its cases wherever it can run."""

import contextlib
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.contract import DeviceInfo
from dovetail.devices.kernels import REFERENCE_KERNEL
from dovetail.devices.refusals import Reason, Refusal
from dovetail.errors import DovetailError, OperatorError, UnknownOption, UnsupportedNode
from dovetail.evaluate.composition import evaluate_composition
from dovetail.evaluate.inference import padded
from dovetail.graph.dtype import DType
from dovetail.graph.model import Model
from dovetail.graph.types import CONTAINERS, TensorType
from dovetail.locks import cached_property
from dovetail.operators.host_kernel import HostKernel, prepared
from dovetail.operators.kernels import OpenCLKernel
from dovetail.operators.operator import Operator
from dovetail.operators.translated import is_translated
from dovetail.plugins.manifest import check_manifest
from dovetail.plugins.records import PACKS
from dovetail.runtime import Core
from dovetail.testing._arrays import Guarded, awkward, read_only, same
from dovetail.testing._translations import check_translation
from dovetail.testing._unwritten import FILLINGS, filled_memory, run_host_kernel
from dovetail.testing.case import Case, each_array, fits_type, passed, type_text
from dovetail.testing.case_files import moved_to, replaced_cases
from dovetail.testing.check import PASSED, Check, Outcome, Verdict, require
from dovetail.testing.devices import check_refusal
from dovetail.testing.kit import Kit

__all__ = ["OpPackChecks", "cases_of", "definition_checks", "label", "probe", "reference_checks"]

Array = NDArray[Any]


class OpPackChecks(Kit):
    """The checks of the operators of a domain. The session is opened, and the pack loaded, when `checks` is first asked for.

    `make_core` gives the session, `seed` the random inputs; `chosen` says which operators of the domain are meant.
    """

    def __init__(
        self,
        domain: str,
        make_core: Callable[[], Core] = Core,
        seed: int = 7,
        chosen: Callable[[Core, type[Operator]], bool] = lambda core, cls: True,
    ) -> None:
        self.domain = domain
        super().__init__(make_core, seed)
        self._chosen = chosen

    @property
    def operators(self) -> tuple[type[Operator], ...]:
        """The operator classes; not those that only stand for others. Raises what keeps the pack from loading."""
        return tuple(cls for cls in self._classes if not is_translated(cls))

    @cached_property
    def _classes(self) -> tuple[type[Operator], ...]:
        plugins = self.core.plugins
        found = tuple(cls for cls in plugins.operators(self.domain) if self._chosen(self.core, cls))
        if not found:
            for record in plugins.records():
                if record.kind in PACKS and record.key == self.domain:
                    plugins.load(record.id)  # raises what keeps it from loading
            known = [cls.op_type for cls in plugins.operators(self.domain)]
            plugins.operator(self.domain, known[0] if known else "?", 1)
            raise OperatorError(f"the pack of domain {self.domain!r} has no operator")
        return found

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every check, in order."""
        cases = {cls: cases_of(cls, self._seed) for cls in self.operators}
        return (
            *(check for cls in cases for check in (*definition_checks(cls, cases[cls]), *self._kernels(cls, cases[cls]))),
            *(check for cls in self._classes for check in self._translations(cls)),
            Check("operators", "manifest", self._manifest),
            Check("operators", "modules", self._modules),
            *(check for cls in cases for check in reference_checks(cls, cases[cls])),
            *(check for cls in cases for check in self._on_devices(cls, cases[cls])),
        )

    def _translations(self, cls: type[Operator]) -> Iterator[Check]:
        for one in cls.translations:
            if self.domain in (cls.domain, one.domain):
                name = f"{one.domain}-{one.op_type}-translation"
                yield Check("translations", name, partial(check_translation, cls, one), f"{one.domain}::{one.op_type}")

    def _manifest(self) -> Verdict:
        """The static manifests of the loaded packs of the domain, where there are any, list what the packs register."""
        packs = [r for r in self.core.plugins.records() if r.kind in PACKS and r.key == self.domain and r.state == "loaded"]
        wrong = [text for record in packs for text in check_manifest(self.core.plugins.load(record.id))]
        require(not wrong, "; ".join(wrong))
        return PASSED

    def _modules(self) -> Verdict:
        """Modules of packages that a pack registered as a whole define the operators by whose stems they are named."""
        wrong = self.core.plugins.misplaced(self.domain)
        require(not wrong, "; ".join(wrong))
        return PASSED

    # --- devices ---------------------------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """The available devices."""
        return self.core.devices

    def _on_devices(self, cls: type[Operator], cases: Sequence[Case]) -> Iterator[Check]:
        for info in self.devices:
            for case in cases:
                name = f"{label(cls)}-{case.name}-{info.name}"
                yield Check("devices", name, partial(self._case, case, info.name), cls.key, case.dtype)

    def _case(self, case: Case, device: str) -> Verdict:
        """The case with the reference device behind `device`, and alone where `device` claims it."""
        model = _model(case)
        self._run(case, model, device, fallback=True)
        try:
            return self._run(case, model, device, fallback=False)
        except UnsupportedNode as error:
            refusals = [a for a in self.core.query_model(model, device).values() if isinstance(a, Refusal)]
            for refusal in refusals:
                check_refusal(refusal)
            return Verdict(Outcome.REFUSED, str(refusals[0]) if refusals else error.message)

    def _run(self, case: Case, model: Model, device: str, *, fallback: bool) -> Verdict:
        with self.core.compile_model(model, device, {"FALLBACK": fallback}) as compiled:
            for place in (read_only, awkward):
                results = compiled({name: each_array(place, value) for name, value in case.feeds().items()})
                wrong = passed(case, [results[i] for i in range(len(case.expected))])
                require(not wrong, f"{'with' if fallback else 'without'} fallback: {wrong}")
            return PASSED if compiled.report().nodes else Verdict(Outcome.FOLDED)

    # --- kernels that the operator has ----------------------------------------------------------------------

    def _kernels(self, cls: type[Operator], cases: Sequence[Case]) -> Iterator[Check]:
        languages = {kernel.language for kernel in cls.kernels}
        for info in self.devices:
            if info.type.lower() in languages:
                name = f"{label(cls)}-kernels-{info.name}"
                yield Check("operators", name, partial(self._kernels_run, cls, cases, info.name), cls.key)

    def _kernels_run(self, cls: type[Operator], cases: Sequence[Case], device: str) -> Verdict:
        """Every data type for which the class has a kernel is run by it in some case, unless the device refuses that type."""
        missing, refusals = [], []
        for dtypes in _kernel_dtypes(cls):
            mine = [case for case in cases if case.dtype in dtypes]
            used = [self._own_kernel(case, device) for case in mine]
            refusals += [answer for answer in used if isinstance(answer, Refusal)]
            if not any(used) and not any(isinstance(answer, Refusal) for answer in used):
                missing.append(" or ".join(dtypes))
        require(not missing, f"no case runs the kernel for {', '.join(missing)} on {device}: add cases in these data types")
        return Verdict(Outcome.REFUSED, str(refusals[0])) if refusals else PASSED

    def _own_kernel(self, case: Case, device: str) -> bool | Refusal:
        """Whether the operator's own kernel, not its reference, runs the case; the refusal where the device cannot."""
        model = _model(case)
        with contextlib.suppress(UnsupportedNode), self.core.compile_model(model, device, {"FALLBACK": False}) as compiled:
            provider = self.core.plugins.provider(type(case.op))
            nodes = compiled.report().nodes
            if any(node.provider == provider and node.kernel != REFERENCE_KERNEL for node in nodes):
                self._debug(case, model, device)
                return True
            # Another kernel, such as that of a chain of post-ops, may have stepped in.
            return next((r for node in nodes for _, r in node.refusals if r.reason is Reason.CAPABILITY), False)
        return next((a for a in self.core.query_model(model, device).values() if isinstance(a, Refusal)), False)

    def _debug(self, case: Case, model: Model, device: str) -> None:
        """Run the case with the buffers of the device checked, where it can: accesses outside them, elements left unwritten."""
        with contextlib.suppress(UnknownOption):
            self.core.compile_model(model, device, {"FALLBACK": False, "DEBUG_BUFFERS": True})(case.feeds())


def cases_of(cls: type[Operator], seed: int = 7) -> tuple[Case, ...]:
    """The cases that the class brings along, and those of the operator that it replaces. Raises what its `cases` raises."""
    rng = np.random.default_rng(seed)
    own = [moved_to(cls, case) if _is_replaced(type(case.op), cls) else case for case in cls.cases(rng)]
    names = {case.name for case in own}
    return (*own, *(case for case in replaced_cases(cls, rng) if case.name not in names))


def _is_replaced(base: type[Operator], cls: type[Operator]) -> bool:
    """Whether `cls` is derived from a definition of the same operator."""
    return base is not cls and issubclass(cls, base) and issubclass(base, Operator) and base.key == cls.key


def label(cls: type[Operator]) -> str:
    """`h_swish`, or `h_swish_13` for a class that holds from a later version on."""
    return cls.stem if cls.since == 1 else f"{cls.stem}_{cls.since}"


def _model(case: Case) -> Model:
    model = case.model()
    return Model(model.graph, {case.op.domain: case.op.since}, model.source)


# --- the class as it is written ------------------------------------------------------------------------------------------


def definition_checks(cls: type[Operator], cases: Sequence[Case]) -> Iterator[Check]:
    """The checks that look at the class and run nothing."""
    for name, function in (
        ("definition", partial(_check_definition, cls)),
        ("kernel_sources", partial(_check_kernel_sources, cls)),
        ("fusion", partial(_check_fusion, cls)),
        ("cases", partial(_check_cases, cls, cases)),
    ):
        if name != "kernel_sources" or cls.kernels:
            yield Check("operators", f"{label(cls)}-{name}", function, cls.key)


_WRITTEN = ("inputs", "outputs", "types", "kernels", "domain", "in_place", "infer", "reference", "compose", "control", "cases")
"""Members that authors write in a class; a name close to one of these, but for attributes, is a mistake."""


def _check_definition(cls: type[Operator]) -> Verdict:
    runs = cls.has_reference() or cls.has_composition() or cls.has_compose_in() or cls.has_control()
    require(runs, "it has neither reference() nor compose() nor compose_in(), so it runs nowhere")
    described = (cls.__doc__ or "").strip() and not str(cls.__doc__).startswith(f"{cls.__name__}(")
    require(described or sys.flags.optimize > 1, "the class has no docstring")  # `python -OO` leaves them out
    require(cls.outputs, "it has no output")
    for name in set(vars(cls)) - set(vars(Operator)) - set(cls.attributes):
        close = difflib.get_close_matches(name, _WRITTEN, 1, 0.8)
        found = bool(close) and not name.startswith("_") and close[0] not in vars(cls)
        require(not found, f"the class has {name!r}: write {''.join(close)!r} if that is meant, or give it another name")
    for port in (*cls.inputs, *cls.outputs):
        # The values of a variadic port may differ in type, which no variable says.
        hint = f"write '{port.name}: T' and name the types of T in `types`"
        require(port.type or port.variadic, f"port {port.name!r} has no data type: {hint}")
    names = [port.name for port in cls.inputs]
    for attribute, name in cls.legacy_attributes.items():
        require(name in names, f"legacy_attributes maps {attribute!r} to {name!r}, which is not an input")
    if not any(spec.required for spec in cls.attributes.values()):
        op = cls.from_attributes({})
        specs = cls.attributes.items()
        require(all(s.is_default(getattr(op, name)) or s.default is None for name, s in specs), "defaults change")
    return PASSED


def _check_kernel_sources(cls: type[Operator]) -> Verdict:
    ports = {port.name for port in (*cls.inputs, *cls.outputs)}
    for kernel in cls.kernels:
        if isinstance(kernel, OpenCLKernel):
            _check_opencl_kernel(cls, kernel, ports)
    return PASSED


def _check_fusion(cls: type[Operator]) -> Verdict:
    """A class that replaces the kernels of an operator decides whether nodes are still merged, and so run without them."""
    home = next(base for base in cls.__mro__ if "post_ops" in vars(base))
    brought = [name for name in ("kernels", "compose") if name in vars(cls)]
    require(
        not (brought and _is_replaced(home, cls)),
        f"it brings {' and '.join(brought)} and inherits post_ops: a node that is merged into the one before it, as a post-op, "
        f"runs without them. Write `post_ops = Operator.post_ops` in the class so that it is never merged, or `post_ops = "
        f"{home.__name__}.post_ops`, that of {home.__module__}, if merging is wanted",
    )
    return PASSED


def _check_opencl_kernel(cls: type[Operator], kernel: OpenCLKernel, ports: set[str]) -> None:
    entries = [kernel.entry] if isinstance(kernel.entry, str) else list(kernel.entry.values())
    for entry in entries:
        require(re.search(rf"\b{re.escape(entry)}\b", kernel.source), f"{kernel.origin}: the source has no kernel {entry!r}")
    for word, named in (("layouts", kernel.layouts), ("images", kernel.images)):
        unknown = sorted(set(named) - ports)
        require(not unknown, f"{kernel.origin}: {word} names {unknown}; the ports are {', '.join(sorted(ports))}")


def _check_cases(cls: type[Operator], cases: Sequence[Case]) -> Verdict:
    # A case is a graph of one node: none for what is composed of the graph around it, or runs other graphs.
    require(cases or cls.has_compose_in() or cls.has_control(), "it has no cases: let the classmethod cases(rng) yield some")
    names = [case.name for case in cases]
    repeated = sorted({name for name in names if names.count(name) > 1})
    require(not repeated, f"several cases are called {', '.join(repeated)}")
    for case in cases:
        require(type(case.op) is cls, f"case {case.name!r} is of {type(case.op).__name__}")
    return PASSED


def _kernel_dtypes(cls: type[Operator]) -> list[tuple[str, ...]]:
    """The data types of the first input of which cases are needed: each for which a kernel has an entry, one of the others."""
    first = cls.inputs[0].type if cls.inputs else ""
    accepted = sorted(d.value for d in cls.types.get(first, frozenset(d for d in DType if d.value == first)))
    own = [k for k in cls.kernels if isinstance(k, OpenCLKernel)]
    listed = [k for k in own if not isinstance(k.entry, str)]
    each = [name for name in accepted if any(k.entry_for(DType(name)) for k in listed)]
    others = [tuple(name for name in accepted if name not in each)] if len(listed) < len(own) else []
    return [*((name,) for name in each), *filter(None, others)]


# --- the class by itself ---------------------------------------------------------------------------------------------------


def reference_checks(cls: type[Operator], cases: Iterable[Case]) -> Iterator[Check]:
    """Inference, reference, composition and host kernels on every case, without a device."""
    for case in cases:
        run = partial(_check_case, case)
        yield Check("cases", f"{label(cls)}-{case.name}", run, cls.key, case.dtype)
        for kernel in cls.kernels:
            if isinstance(kernel, HostKernel):
                run = partial(_check_host_kernel, kernel, case)
                yield Check("cases", f"{label(cls)}-{case.name}-{kernel.name}", run, cls.key, case.dtype)


def _check_case(case: Case) -> Verdict:
    types = case.input_types()
    inferred = infer(case.op, types, len(case.expected))
    for index, (got, want) in enumerate(zip(inferred, case.expected, strict=True)):
        # Dimensions that depend on data are open.
        require(fits_type(want, got), f"infer() gives {got} for output {index}, expected {type_text(want)}")
    _check_known(case, types)
    if case.op.has_control() and not case.op.has_reference():
        return PASSED  # what runs sub-graphs runs on devices only
    _require_passed(case, "reference()", compute(case.op.reference, case))
    _require_passed(case, "reference() with strided inputs", compute(case.op.reference, case, awkward))
    for filling in FILLINGS:
        with filled_memory(filling):
            outputs = compute(case.op.reference, case)
        _require_passed(case, "reference() leaves elements of np.empty unwritten", outputs)
    # Nodes on containers are never expanded.
    if case.op.has_composition() and not any(isinstance(t, CONTAINERS) for t in types):
        composed = compute(lambda *inputs: evaluate_composition(case.op, inputs), case)
        _require_passed(case, "compose()", composed)
    return PASSED


def _check_host_kernel(kernel: HostKernel, case: Case) -> Verdict:
    """Each configuration in which the kernel takes the case, whichever of them plans choose, in memory that held other values."""
    inputs, outputs = case.input_types(), infer(case.op, case.input_types(), len(case.expected))
    arrays = [v for v in case.inputs if v is None or isinstance(v, np.ndarray)]
    if len(arrays) < len(inputs) or not all(t is None or t.is_static for t in (*inputs, *outputs)):
        return Verdict(Outcome.REFUSED, "nodes on containers and with shapes that depend on data run by the reference")
    ports = case.op.inputs, case.op.outputs
    configs, refused = prepared(kernel, case.op, padded(inputs, ports[0]), padded(outputs, ports[1]))
    for config in configs:
        sides = [", ".join([str(p.layout) for p in side if p is not None]) for side in (config.inputs, config.outputs)]
        for filling in FILLINGS:
            given = run_host_kernel(kernel, case.op, config, arrays, outputs, filling)
            wrong = passed(case, given)
            what = f"host kernel {kernel.name!r} in layouts {' -> '.join(sides)}"
            require(not wrong, f"{what}: {wrong}; execute() has to write every element of each output")
    return PASSED if configs else Verdict(Outcome.REFUSED, "; ".join(refused))


def _check_known(case: Case, types: Sequence[TensorType | None]) -> None:
    """Where inference knows the content of inputs and outputs, that of the outputs is right: no input's, by mistake."""
    pairs = zip(case.inputs, types, strict=True)
    known = [TensorType.of(value, known=True) if isinstance(value, np.ndarray) else t for value, t in pairs]
    for index, (got, want) in enumerate(zip(infer(case.op, known, len(case.expected)), case.expected, strict=True)):
        wrong = "" if got.value is None else passed(replace(case, expected=(want,)), [got.value])
        hint = "return X.with_shape(X.shape) for an input X"
        require(not wrong, f"infer() says of output {index} what its content is, and {wrong}; {hint}")


def _require_passed(case: Case, what: str, outputs: Sequence[Any]) -> None:
    require(len(outputs) >= len(case.expected), f"{what} gives {len(outputs)} outputs, expected {len(case.expected)}")
    ports = case.op.outputs
    fits = len(outputs) <= len(ports) or any(port.variadic for port in ports)
    require(fits, f"{what} gives {len(outputs)} outputs, the class has {len(ports)}")
    # A case may expect the leading outputs only; too few were refused above.
    wrong = passed(case, [_as_value(got, type(want)) for got, want in zip(outputs, case.expected, strict=False)])
    require(not wrong, f"{what}: {wrong}")


def _as_value(given: Any, wanted: type) -> Any:
    """The results of a reference as the runtime takes them: numbers, and lists of them, become arrays."""
    return given if given is None or isinstance(given, dict) or wanted is list else np.asarray(given)


def infer(op: Operator, types: Sequence[TensorType | None], outputs: int) -> tuple[TensorType, ...]:
    """The types that `infer` gives for the first `outputs` outputs, from those of the inputs."""
    op.check(types, outputs)
    given = op.infer(*types, *[None] * (len(op.inputs) - len(types)))
    found = given if isinstance(given, tuple) else (given,)
    require(len(found) >= outputs, f"infer() gives {len(found)} output types, the operator has {outputs} outputs")
    return found[:outputs]


def compute(function: Callable[..., Any], case: Case, place: Callable[[Array], Array] = read_only) -> list[Any]:
    """The results of `function` for the inputs of a case, which it must not change."""
    placed = [each_array(place, value) for value in case.inputs]
    guards = [_guarded(value) if place is read_only else None for value in case.inputs]
    given = [p if g is None else g.array for p, g in zip(placed, guards, strict=True)]
    with np.errstate(all="ignore"):
        outputs = function(*given, *[None] * (len(case.op.inputs) - len(given)))
    for index, guard in enumerate(guards):
        require(guard is None or guard.intact, f"input {index} was written")
    require(all(map(_unchanged, case.inputs, placed)), "an input was written")
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _guarded(value: Any) -> Guarded | None:
    return Guarded(value) if isinstance(value, np.ndarray) and value.dtype != object else None


def _unchanged(before: Any, after: Any) -> bool:
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_unchanged, before, after))
    if before is None or isinstance(before, dict):
        return bool(before == after)
    return same(before, np.ascontiguousarray(after).reshape(before.shape))


# --- a class without cases -------------------------------------------------------------------------------------------------


def probe(cls: type[Operator]) -> bool:
    """Compare `reference` with `infer` on made-up inputs; False when none fit the operator.

    Raises `ConformanceFailure` when they disagree, and what else the reference raises.
    """
    if any(spec.required for spec in cls.attributes.values()):
        return False
    rng = np.random.default_rng(3)
    op = cls.from_attributes({})
    for shape in ((2, 3), (1, 3, 4, 4), (4, 4), (5,)):
        inputs = [_made_up(cls, port.type, shape, rng) for port in cls.inputs if not port.optional]
        try:
            types = infer(op, list(map(TensorType.of, inputs)), sum(not port.optional for port in cls.outputs) or 1)
        except DovetailError:
            continue  # These inputs are not for this operator.
        try:
            outputs = compute(op.reference, Case("probe", op, tuple(inputs), ()))
        except DovetailError:
            continue  # Nor are these: the reference has its own message.
        # Only outputs that the operator requires were inferred.
        for index, (given, want) in enumerate(zip(outputs, types, strict=False)):
            got = _as_value(given, list if isinstance(want, CONTAINERS) else np.ndarray)
            fits = fits_type(got, want)
            require(fits, f"output {index}: reference() gives {type_text(got)}, infer() says {want}")
        return True
    return False


def _made_up(cls: type[Operator], variable: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    accepted = cls.types.get(variable, frozenset(d for d in DType if d.value == variable) or frozenset({DType.FLOAT32}))
    dtype = DType.FLOAT32 if DType.FLOAT32 in accepted else sorted(accepted, key=lambda d: list(DType).index(d))[0]
    return rng.integers(0, 2, shape).astype(dtype.numpy) if not dtype.is_float else rng.random(shape).astype(dtype.numpy)
