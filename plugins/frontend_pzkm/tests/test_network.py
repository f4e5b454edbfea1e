"""The example network of the format, built here, and the original file where it is at hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dovetail
from dovetail.cli import program
from dovetail.frontend import Model
from dovetail_frontend_pzkm.catalogue import CATALOGUE
from dovetail_frontend_pzkm.schema import PModel
from dovetail_frontend_pzkm.wire import read_tables, write_tables

ROOT = Path(__file__).resolve().parents[3]
ORIGINAL = ROOT.parent / "shared" / "cases" / "first.pzkm"
CATALOGUE_FILE = ORIGINAL.with_name("pzk-metadata.json")


def convolved_and_pooled(x: NDArray[Any], w: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """In float64: windows of 4x4 side by side, then the maximum of 2x2."""
    n, c, h, _ = x.shape
    blocks = x.astype(np.float64).reshape(n, c, h // 4, 4, -1, 4)
    y = np.einsum("nchiwj,ocij->nohw", blocks, w.astype(np.float64)) + b.astype(np.float64).reshape(-1, 1, 1)
    return y.reshape(n, len(w), y.shape[2] // 2, 2, -1, 2).max((3, 5))


def check(core: dovetail.Core, model: Model, device: str) -> None:
    x = np.random.default_rng(11).standard_normal(model.inputs[model.graph.inputs[0]].dims).astype(np.float32)
    w, b = list(model.graph.constants.values())
    expected = convolved_and_pooled(x, w, b)
    (got,) = core.compile_model(model, device)([x]).values()
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_the_example_agrees_with_float64(core: dovetail.Core, files: Any, device: str) -> None:
    if device not in {name.split(".")[0] for name in core.available_devices}:
        pytest.fail(f"{device} is missing; found {core.available_devices}")
    check(core, files.read(files.network()), device)


@pytest.mark.parametrize("identifier", [True, False])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_layers_in_any_order_with_and_without_identifier(
    core: dovetail.Core, files: Any, order: tuple[int, ...], identifier: bool
) -> None:
    stored = files.network(order, size=16)
    content = write_tables(stored, identifier)
    assert (content[4:8] == b"PZKM") is identifier
    assert read_tables(content, PModel) == files.without(stored)
    check(core, files.read(content), "NUMPY")


def test_metadata_and_names(files: Any) -> None:
    model = files.read(files.network(size=16))
    assert model.metadata == {
        "pzkm.author": "somebody",
        "pzkm.version": "v1",
        "pzkm.name": "tested",
        "pzkm.time": "2024-02-29T12:30:01",
    }
    assert model.format == "pzkm"
    assert [n.name for n in model.graph.nodes] == ["conv", "pool"]
    assert list(model.graph.constants) == ["w", "b"]
    assert model.graph.constants["b"].shape == (10,)
    assert files.read(files.without(files.network(size=16), create_time=None, author="")).metadata == {
        "pzkm.version": "v1",
        "pzkm.name": "tested",
    }


def test_the_stages(files: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.pzkm"
    path.write_bytes(write_tables(files.network((1, 0), size=16)))
    done = CliRunner().invoke(program, ["explain", str(path), "--schedule", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    stages = json.loads(done.stdout)["stages"]
    assert [[node["operator"] for node in stage] for stage in stages] == [["Conv"], ["MaxPool"]]
    assert stages[1][0]["waits_for"] == [stages[0][0]["node"]]


if ORIGINAL.is_file():  # files of others are not part of this repository

    @pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
    def test_the_original_file(core: dovetail.Core, device: str) -> None:
        model = core.read_model(ORIGINAL)
        assert model.metadata["pzkm.time"] == "2022-06-29T09:46:19"
        check(core, model, device)

    def test_the_original_catalogue() -> None:
        entries = {entry["name"]: entry for entry in json.loads(CATALOGUE_FILE.read_text())}
        assert set(entries) == set(CATALOGUE)
        for name, entry in entries.items():
            ours = CATALOGUE[name]
            assert {a["name"] for a in entry.get("attributes", [])} == set(ours.attributes)
            assert [port["name"] for port in entry.get("inputs", [])] == list(ours.inputs)
            for attribute in entry.get("attributes", []):
                # Some that the catalogue calls one number are several: as many as the tensor has dimensions.
                assert ours.attributes[attribute["name"]][0].removesuffix("[]") == attribute["type"].removesuffix("[]")
