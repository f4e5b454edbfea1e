"""ONNX's own node cases through the whole runtime: file, frontend, planning, device."""

import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

import dovetail
from dovetail.errors import DovetailError, UnknownOperator, UnsupportedNode

FAILURES_SHOWN = 20
OUTCOMES = {
    "passed": "the outputs are ONNX's",
    "refused": "the device refuses a node with a reason",
    "undefined": "no such operator here",
}

# Case -> why it cannot pass here. A case that starts to pass must be taken out: the test says so.
EXCLUDED: dict[str, str] = {}


def as_value(given: Any) -> Any:
    """An input or output of a case as the runtime takes it: an array, a list of arrays, or None."""
    if isinstance(given, onnx.TensorProto):
        return onnx.numpy_helper.to_array(given)
    return np.asarray(given) if isinstance(given, np.generic) else given


def differs(got: Any, want: Any, case: Any) -> str:
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"got {got!r:.60}, expected a sequence of {len(want)}"
        return next((text for g, w in zip(got, want, strict=True) if (text := differs(g, w, case))), "")
    if want is None or got is None:
        return "" if want is got else f"got {got!r:.60}, expected {want!r:.60}"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "OSU":
        return "" if np.array_equal(got, want) else "strings differ"
    # float16 outputs of ONNX come from other accumulation orders than ours: half a unit in the last place more. In bfloat16
    # ONNX rounds each step of a sum, so that its outputs are up to two units from ours and from float64.
    rtol = max(case.rtol, {"float16": 2e-3, "bfloat16": 2**-6}.get(want.dtype.name, 0.0))
    close = np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=case.atol, equal_nan=True)
    return "" if close.all() else f"{np.count_nonzero(~close)} of {close.size} elements differ"


def run(core: dovetail.Core, device: str, case: Any) -> str:
    """One of `OUTCOMES`, or what went wrong."""
    try:
        model = core.read_model(case.model.SerializeToString(), format="onnx")
        for inputs, expected in case.data_sets:
            inputs, expected = [as_value(v) for v in inputs], [as_value(v) for v in expected]
            with core.compile_model(model, device, {"FALLBACK": False}) as compiled:
                results = compiled(dict(zip(model.graph.inputs, inputs, strict=True)))
            wrong = [f"output {i}: {text}" for i, want in enumerate(expected) if (text := differs(results[i], want, case))]
            if wrong:
                return wrong[0]
    except UnknownOperator:
        return "undefined"
    except UnsupportedNode:
        return "refused"
    return "passed"


def test_node_cases(core: dovetail.Core, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    failures = []
    with warnings.catch_warnings():
        # ONNX computes its expected outputs while it loads: overflows, and calls that NumPy 2.5 deprecates.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        cases = load_model_tests(kind="node")
    for case in cases:
        try:
            outcome = run(core, device, case)
        except DovetailError as error:
            outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        kind = outcome if outcome in OUTCOMES else "failed"
        if case.name in EXCLUDED:
            assert kind != "passed", f"{case.name} passes now: take it out of EXCLUDED"
            kind = "excluded"
        elif kind == "failed":
            failures.append(f"{case.name}: {outcome}")
        counts[kind] += 1
    with capsys.disabled():
        print(f"\nONNX node cases on {device}: {dict(counts)}")
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:FAILURES_SHOWN])
    assert counts["passed"] > 0
