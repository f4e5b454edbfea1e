"""Plans of random graphs in files give the results and the report of the session that wrote them, bit for bit."""

import os
from pathlib import Path

import numpy as np
import pytest
from random_graphs.generator import generate
from random_graphs.graph import equal_bits
from test_new_shapes import DRAWN, open_model, told

import dovetail
from dovetail.errors import DovetailError

SEED = int(os.environ.get("DOVETAIL_SEED", "0")) * 1000
GRAPHS = 25


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_imported_plans_equal_exported_ones(tmp_path: Path, device: str) -> None:
    same = 0
    for index in range(GRAPHS):
        graph = generate(SEED + 500 + index)
        if any(node.op_type in DRAWN for node in graph.nodes):
            continue
        path, plans = tmp_path / f"{index}.onnx", tmp_path / f"{index}.plans"
        path.write_bytes(open_model(graph))
        with dovetail.Core() as core, dovetail.Core() as other:
            try:
                compiled = core.compile_model(path, device)
                expected = [np.array(value) for value in compiled(graph.inputs).values()]
            except DovetailError:
                continue  # other tests look at errors
            compiled.export_model(plans)
            path.unlink()
            again = other.import_model(plans)
            results = [np.array(value) for value in again(graph.inputs).values()]
            assert all(map(equal_bits, results, expected)), index
            assert told(again.report()) == told(compiled.report())
            same += 1
    assert same > GRAPHS // 2
