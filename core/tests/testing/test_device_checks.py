"""The checks of devices: a device that is right passes, and each kind of fault is found by the check that is meant for it."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dovetail.device import Reason, Refusal
from dovetail.errors import DeviceNotFound
from dovetail.testing import Outcome
from dovetail.testing.check import ConformanceFailure
from dovetail.testing.devices import DeviceChecks, check_refusal

GROUPS = ("operators", "data_types", "shapes", "memory", "requests", "graphs")
NOT_CLAIMED = (
    "staged() returns None: loops copy what their iterations pass on",
    "the device made the final plan at once",
)


def failed(results: list[Any]) -> dict[str, str]:
    return {r.name: r.detail for r in results if r.outcome is Outcome.FAILED}


@pytest.mark.parametrize("group", GROUPS)
def test_a_device_that_runs_everything_passes(toy: Any, group: str) -> None:
    results = toy.results(group)
    counts = Counter(r.outcome for r in results)
    assert failed(results) == {}
    # Nodes whose output shapes depend on data run on the host, whatever the device.
    refused = [r.detail for r in results if r.outcome is Outcome.REFUSED]
    assert set(refused) <= {"shape known only at run time: its output shapes depend on data", *NOT_CLAIMED}
    assert counts[Outcome.PASSED] > 3


@pytest.mark.parametrize("group", GROUPS)
def test_a_device_that_claims_little_passes_too(toy: Any, float32_only: Any, group: str) -> None:
    results = toy.results(group, float32_only)
    assert failed(results) == {}
    if group in ("operators", "data_types"):
        assert Counter(r.outcome for r in results)[Outcome.REFUSED] > 20
        assert all(r.detail for r in results if r.outcome is Outcome.REFUSED)


def test_a_device_that_claims_nothing_is_refused_everywhere_and_fails_nowhere(toy: Any) -> None:
    results = toy.results("all", lambda node: False)
    assert failed(results) == {}
    assert {r.outcome for r in results if r.group != "memory"} <= {Outcome.REFUSED, Outcome.FOLDED}


def test_names_of_checks_are_their_own() -> None:
    names = [check.name for check in DeviceChecks("ANY").checks]
    assert len(names) == len(set(names))


def test_a_device_that_is_not_there_fails_with_the_cause() -> None:
    check = DeviceChecks("NOWHERE").checks[0]
    with pytest.raises(DeviceNotFound, match="'NOWHERE'"):
        check()


def test_a_wrong_operator(toy: Any) -> None:
    wrong = failed(toy.results("operators", faults=["wrong_add"], only="a"))
    assert {name.partition("-")[0] for name in wrong} == {"add"}
    assert "expected" in wrong["add-equal_shapes"]
    assert failed(toy.results("graphs", faults=["wrong_add"]))


def test_memory_outside_the_outputs(toy: Any) -> None:
    wrong = failed(toy.results("operators", faults=["overruns"], only="s"))
    assert {name.partition("-")[0] for name in wrong} == {"sqrt"}
    assert "outside its outputs" in wrong["sqrt-odd_size"]


def test_a_refusal_without_detail(toy: Any) -> None:
    results = toy.results("operators", lambda node: node.op.op_type != "Abs", ["silent"], only="a")
    assert {name.partition("-")[0] for name in failed(results)} == {"abs"}
    assert "has no detail" in failed(results)["abs-odd_size"]


def test_a_reason_outside_the_vocabulary() -> None:
    check_refusal(Refusal(Reason.SHAPE, "more than 5 dimensions"))
    with pytest.raises(ConformanceFailure, match=r"'because'; accepted: dovetail\.device\.Reason"):
        check_refusal(Refusal("because", "of it"))  # the point of the test


def test_a_device_that_says_now_this_now_that(toy: Any) -> None:
    texts = set(failed(toy.results("operators", faults=["changes_its_mind"], only="abs")).values())
    assert any("compile_model" in text or "query_model" in text for text in texts)


def test_a_report_without_kernel_name(toy: Any) -> None:
    assert "names no kernel" in failed(toy.results("operators", faults=["nameless"], only="abs"))["abs-odd_size"]


def test_bits_that_are_lost(toy: Any) -> None:
    assert set(failed(toy.results("data_types", faults=["loses_bits"]))) == {"bits-transpose-float16", "bits-reshape-float16"}


def test_inputs_that_are_written(toy: Any) -> None:
    wrong = failed(toy.results("memory", faults=["writes_inputs"]))
    assert "was written" in wrong["inputs_are_not_written"]


def test_runs_that_differ(toy: Any) -> None:
    assert "two_runs" in failed(toy.results("requests", faults=["drifts"]))
    assert "two runs give different results" in failed(toy.results("operators", faults=["drifts"], only="relu"))["relu-odd_size"]


def test_requests_that_share_state(toy: Any) -> None:
    wrong = failed(toy.results("requests", faults=["shares_requests"]))
    assert "disturb each other" in wrong["threads"]


def test_fusion_that_changes_results(toy: Any) -> None:
    wrong = failed(toy.results("graphs", faults=["ignores_post_ops"]))
    assert any("with fusion" in text for text in wrong.values())
    assert failed(toy.results("graphs")) == {}


def test_results_in_a_foreign_data_type(toy: Any) -> None:
    assert failed(toy.results("operators", faults=["foreign_dtype"], only="abs-odd"))


def test_checks_run_again_after_close(toy: Any) -> None:
    kit = toy()
    first = kit.checks[0]
    for _ in range(2):
        assert first.result().outcome is Outcome.PASSED
        kit.close()


def test_inputs_are_seeded() -> None:
    a, b, c = (DeviceChecks("ANY", seed=seed).checks[0].function.args[0].inputs[0] for seed in (7, 7, 8))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
