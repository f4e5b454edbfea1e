"""ONNX's own backend cases through the whole runtime: file, frontend, planning, device; with and without the pack of the rest.

The cases are those of package onnx (`onnx.backend.test`): models with inputs and the outputs that any backend must give.
"""

import functools
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

import dovetail
from dovetail.errors import DovetailError, PluginError, UnknownOperator, UnsupportedNode

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
FAILURES_SHOWN = 20
LEAST = {"node": 1850, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35, "light": 4}
"""Cases that must pass on the reference device, with the pack; all that are drawn where only a sample runs."""
LEAST_OWN = 1800
"""Node cases that must pass without it."""
PACK = "dovetail-ops-onnx-reference"
COMPILED = ("test_squeezenet", "test_shufflenet")
"""The light models that run on OPENCL unless DOVETAIL_EXHAUSTIVE is set: each of the others compiles kernels for minutes."""
SAMPLES = {
    ("OPENCL", "node"): 24,  # each compiles kernels
    ("OPENCL", "pytorch-converted"): 12,
    ("OPENCL", "pytorch-operator"): 8,
    ("ONEDNN", "node"): 400,  # of which half are refused
    ("ONEDNN", "pytorch-converted"): 30,
    ("ONEDNN", "light"): 3,  # test_light_models.py has all of them with random weights
}
"""How many cases run on a type of device unless DOVETAIL_EXHAUSTIVE is set, others for each DOVETAIL_SEED."""
OUTCOMES = {
    "passed": "the outputs are ONNX's",
    "refused": "the device refuses a node with a reason",
}


@dataclass(frozen=True)
class BackendCase:
    """One model with its sets of inputs and expected outputs: arrays, lists of such, None."""

    name: str
    model: onnx.ModelProto
    data_sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float


@functools.cache
def excluded() -> dict[str, str]:
    """Case -> why it does not pass."""
    lines = Path(__file__).with_name("onnx_excluded.txt").read_text().splitlines()
    rows = [line.split("|", 1) for line in lines if line and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, reason in rows}


@functools.cache
def node_cases() -> tuple[BackendCase, ...]:
    """The cases of kind `node`."""
    with warnings.catch_warnings():
        # ONNX computes its expected outputs while it loads: overflows, and calls that NumPy 2.5 deprecates.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        loaded = load_model_tests(kind="node")
    return tuple(
        BackendCase(
            case.name,
            case.model,
            tuple(([_value(v) for v in i], [_value(v) for v in o]) for i, o in case.data_sets),
            case.rtol,
            case.atol,
        )
        for case in loaded
    )


def listed(kind: str) -> Sequence[Any]:
    """The cases of a kind by name, not read yet."""
    return node_cases() if kind == "node" else load_model_tests(kind="real" if kind == "light" else kind)


def read(kind: str, listed: Iterable[Any]) -> Iterator[BackendCase]:
    """Cases of a kind, read one at a time."""
    return iter(listed) if kind == "node" else map(_light if kind == "light" else _stored, listed)


def _light(case: Any) -> BackendCase:
    """A model whose weights are constants, with the input that ONNX's own runner makes up and the output stored beside it."""
    path = Path(onnx.__file__).parents[1] / case.url
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for given in model.graph.input:
        if given.name not in weights:
            shape = [d.dim_value if d.HasField("dim_value") else 1 for d in given.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    stored = path.with_name(f"{path.stem}_output_0.pb").read_bytes()
    expected = [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(stored))]
    return BackendCase(case.name, model, ((inputs, expected),), case.rtol, case.atol)


def _stored(case: Any) -> BackendCase:
    """A model with its data in files."""
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        sides = []
        for side, formals in (("input", model.graph.input), ("output", model.graph.output)):
            files = [data / f"{side}_{i}.pb" for i in range(len(list(data.glob(f"{side}_*.pb"))))]
            sides.append([_read(path.read_bytes(), formal.type) for path, formal in zip(files, formals, strict=False)])
        sets.append((sides[0], sides[1]))
    return BackendCase(case.name, model, tuple(sets), case.rtol, case.atol)


def _read(stored: bytes, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(stored))
    if kind.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(stored))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(stored))


def _value(given: Any) -> Any:
    """An input or output of a node case as the runtime takes it: an array, a list of arrays, or None."""
    if isinstance(given, onnx.TensorProto):
        return onnx.numpy_helper.to_array(given)
    return np.asarray(given) if isinstance(given, np.generic) else given


def differs(got: Any, want: Any, case: BackendCase, *, values: bool = True) -> str:
    """The first difference; an empty string for none. Without `values` only data types and shapes are compared."""
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"got {got!r:.60}, expected a sequence of {len(want)}"
        return next((text for g, w in zip(got, want, strict=True) if (text := differs(g, w, case, values=values))), "")
    if want is None or got is None:
        return "" if want is got else f"got {got!r:.60}, expected {want!r:.60}"
    texts = got.dtype == object and want.dtype.kind in "OSU"
    if (got.dtype != want.dtype and not texts) or got.shape != want.shape:
        return f"got {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if not values:
        return ""
    if texts:
        return "" if np.array_equal(got, want.astype(object)) else "strings differ"
    # float16 outputs of ONNX come from other accumulation orders than ours: half a unit in the last place more. In bfloat16
    # ONNX rounds each step of a sum, so that its outputs are up to two units from ours and from float64.
    rtol = max(case.rtol, {"float16": 2e-3, "bfloat16": 2**-6}.get(want.dtype.name, 0.0))
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    close = np.isclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=case.atol, equal_nan=True)
    return "" if close.all() else f"{np.count_nonzero(~close)} of {close.size} elements differ"


def run(core: dovetail.Core, device: str, case: BackendCase) -> str:
    """One of `OUTCOMES`, or what went wrong."""
    values = not excluded().get(case.name, "").startswith("chance")
    try:
        model = core.read_model(case.model.SerializeToString(), format="onnx")
        with core.compile_model(model, device, {"FALLBACK": False}) as compiled:
            for inputs, expected in case.data_sets:
                results = compiled(dict(zip(model.graph.inputs, inputs, strict=True)))
                wrong = [
                    f"output {i}: {text}"
                    for i, want in enumerate(expected)
                    if (text := differs(results[i], want, case, values=values))
                ]
                if wrong:
                    return wrong[0]
    except UnsupportedNode:
        return "refused"
    except DovetailError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "passed"


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes(attribute.g)


def needs_the_pack(core: dovetail.Core, case: BackendCase) -> bool:
    """True when an operator of the model is defined by no class of dovetail's own."""
    versions = {entry.domain: entry.version for entry in case.model.opset_import}
    local = {(function.domain, function.name) for function in case.model.functions}
    for node in nodes(case.model.graph):
        # The frontend converts models of operator sets 1 to 6.
        version = max(versions.get(node.domain, 1), 1 if node.domain else 7)
        if (node.domain, node.op_type) not in local and not known(core, node.domain, node.op_type, version):
            return True
    return False


def known(core: dovetail.Core, domain: str, op_type: str, version: int) -> bool:
    try:
        provider = core.plugins.provider(core.plugins.operator(domain, op_type, version))
    except (UnknownOperator, PluginError):
        return False
    return not provider.startswith(PACK)


def chosen(kind: str, device: str, sampled: Callable[[Sequence[Any], int], Sequence[Any]]) -> Iterable[BackendCase]:
    """The cases that run: all, or a sample."""
    found = listed(kind)
    if kind == "light" and os.environ.get("DOVETAIL_EXHAUSTIVE") != "1":
        on_opencl = device.startswith("OPENCL")
        found = [c for c in found if (c.name in COMPILED if on_opencl else c.name not in excluded())]
    return read(kind, sampled(found, SAMPLES.get((device.partition(".")[0], kind), len(found))))


@pytest.mark.parametrize("kind", KINDS)
def test_backend_cases(
    core: dovetail.Core,
    device: str,
    kind: str,
    sampled: Callable[[Sequence[Any], int], Sequence[Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts: Counter[str] = Counter()
    failures = []
    for case in chosen(kind, device, sampled):
        outcome = run(core, device, case)
        reason = excluded().get(case.name)
        if reason is not None and not reason.startswith("chance"):
            assert outcome != "passed", f"{case.name} passes now: take it out of onnx_excluded.txt"
            outcome = "excluded"
        elif reason is not None and outcome == "passed":
            outcome = "excluded"
        elif outcome == "passed":
            outcome = "passed by the pack" if needs_the_pack(core, case) else "passed"
        elif outcome not in OUTCOMES:
            failures.append(f"{case.name}: {outcome}")
            outcome = "failed"
        counts[outcome] += 1
    with capsys.disabled():
        print(f"\nONNX {kind} cases on {device}: {dict(counts)}")
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:FAILURES_SHOWN])
    assert counts["passed"] > 0
    if device == "NUMPY":
        assert counts["passed"] + counts["passed by the pack"] >= min(LEAST[kind], SAMPLES.get((device, kind), LEAST[kind]))
        assert not counts["refused"]
        assert kind != "node" or counts["passed"] >= LEAST_OWN


def test_every_exclusion_names_a_case() -> None:
    assert set(excluded()) <= {case.name for case in (*node_cases(), *listed("simple"), *listed("light"))}


def test_without_the_pack_its_operators_are_unknown() -> None:
    bare = dovetail.Core(plugins=f"-{PACK}")
    case = next(case for case in node_cases() if case.model.graph.node[0].op_type == "ImageDecoder")
    assert needs_the_pack(bare, case)
    assert run(bare, "NUMPY", case).startswith("UnknownOperator")
