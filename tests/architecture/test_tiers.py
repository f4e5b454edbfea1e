"""Tiers and samples of the root conftest.py: listed folders exist; samples are repeatable, not empty, and complete on demand."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Mapping[str, Any]:
    """conftest.py as a module, in another environment."""
    for name in ("DOVETAIL_SEED", "DOVETAIL_EXHAUSTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(ROOT / "conftest.py"))


class Item:
    """A test of a file, with a device as parameter and the marks given."""

    def __init__(self, number: int, *marks: Any, file: str = "test_a.py", device: str = "", function: str = "test") -> None:
        self.number, self.marks, self.path = number, marks, ROOT / file
        self.nodeid = f"{file}::{function}[{number}]"
        self.callspec = SimpleNamespace(params={"device": device})

    def iter_markers(self, name: str) -> list[Any]:
        return [mark.mark for mark in self.marks if mark.mark.name == name]


def kept(conftest: Mapping[str, Any], items: list[Item]) -> list[int]:
    """The numbers of the tests that stay."""
    dropped: list[Item] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    stay = list(items)
    conftest["pytest_collection_modifyitems"](SimpleNamespace(hook=hook), stay)
    assert {*stay, *dropped} == {*items}
    assert len(stay) + len(dropped) == len(items)
    return [item.number for item in stay]


def test_listed_folders_have_tests() -> None:
    conftest = runpy.run_path(str(ROOT / "conftest.py"))
    for listed in (*conftest["QUICK"], *conftest["SLOW"]):
        path = ROOT / listed
        assert path.is_file() or any(path.rglob("test_*.py")), f"{listed} is listed in conftest.py and has no tests"
    assert conftest["_is_quick"](Path(__file__))
    assert not conftest["_is_quick"](ROOT / conftest["SLOW"][0] / "test_it.py")


def test_a_share_of_each_file_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    conftest = loaded(monkeypatch)
    half = pytest.mark.exhaustive(0.5)
    items = [Item(i, half, file=f"test_{'ab'[i % 2]}.py") for i in range(20)] + [Item(20)]
    found = kept(conftest, items)
    assert 20 in found
    assert [sum(i % 2 == odd for i in found if i < 20) for odd in (0, 1)] == [5, 5]
    assert kept(conftest, items) == found == sorted(found)


def test_each_function_has_a_test_before_one_has_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many more tests another function of the file has."""
    functions = ["many"] * 90 + [f"few_{i // 2}" for i in range(10)]
    items = [Item(i, pytest.mark.exhaustive(0.1), function=name) for i, name in enumerate(functions)]
    for seed in "0123":
        found = kept(loaded(monkeypatch, DOVETAIL_SEED=seed), items)
        assert len(found) == 10
        assert {functions[i] for i in found} == {*functions}


def test_each_operator_of_a_kit_has_a_check_before_one_has_two(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"conv-case_{i}-OPENCL.0" for i in range(90)] + [f"op_{i // 2}-case-OPENCL.{i % 2}" for i in range(10)]
    items = [Item(i, pytest.mark.exhaustive(0.1, device="OPENCL")) for i in range(100)]
    for item, name in zip(items, names, strict=True):
        item.callspec.params = {"check": SimpleNamespace(name=name)}
    found = kept(loaded(monkeypatch), items)
    assert len(found) == 10
    assert len({names[i].partition("-")[0] for i in found}) == 6


def test_another_seed_draws_another_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item(i, pytest.mark.exhaustive(0.1)) for i in range(200)]
    found = {tuple(kept(loaded(monkeypatch, DOVETAIL_SEED=seed), items)) for seed in ("0", "1", "2")}
    assert len(found) == 3


def test_all_run_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item(i, pytest.mark.exhaustive(0.1)) for i in range(20)]
    assert kept(loaded(monkeypatch, DOVETAIL_EXHAUSTIVE="1"), items) == list(range(20))


def test_at_least_one_runs_and_other_devices_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pytest -k` for one test; of two marks the smaller share counts."""
    conftest = loaded(monkeypatch)
    mark = pytest.mark.exhaustive(0.01, device="OPENCL")
    assert kept(conftest, [Item(0, mark, device="OPENCL.0")]) == [0]
    assert kept(conftest, [Item(i, mark, device="NUMPY") for i in range(9)]) == list(range(9))
    assert len(kept(conftest, [Item(i, mark, pytest.mark.exhaustive(0.5), device="OPENCL") for i in range(9)])) == 1


def test_samples_of_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = loaded(monkeypatch)["sampled"].__wrapped__()
    assert len(draw(range(100), 7)) == 7
    assert list(draw(range(100), 7)) == sorted(set(draw(range(100), 7)))
    assert list(draw(range(5), 7)) == list(range(5))
    assert len(loaded(monkeypatch, DOVETAIL_EXHAUSTIVE="1")["sampled"].__wrapped__()(range(100), 7)) == 100


def test_the_device_of_a_check_of_a_pack_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = pytest.mark.exhaustive(0.5, device="OPENCL")
    items = [Item(i, mark) for i in range(8)]
    for item in items:
        item.callspec.params = {"check": SimpleNamespace(name=f"gelu-odd_size-{'OPENCL.0' if item.number < 4 else 'NUMPY'}")}
    found = kept(loaded(monkeypatch), items)
    assert (len(found), found[-4:]) == (6, [4, 5, 6, 7])
