"""Installed packages with graph passes, as their authors and users meet them: traces in reports and commands, named errors."""

import json
from pathlib import Path
from typing import Any

import pytest

PASSES = """
    from dovetail.passes import GraphPass, drop_dead_nodes, rename_reads
    from dovetail_ops_onnx.neg import Neg

    def drop_double_neg(graph, context):
        negated = {n.outputs[0]: n.inputs[0] for n in graph.nodes if type(n.op) is Neg}
        same = {name: negated[inner] for name, inner in negated.items() if inner in negated}
        nodes = tuple(rename_reads(node, same) for node in graph.nodes)
        return drop_dead_nodes(graph.replace(nodes=nodes)) if same else graph

    WRONG = {
        "raises": lambda graph, context: 1 // 0,
        "forgets": lambda graph, context: None,
        "drops_output": lambda graph, context: graph.replace(outputs=graph.outputs[1:]),
        "drops_nodes": lambda graph, context: graph.replace(nodes=()),
    }
    chosen = []

    @hookimpl
    def dovetail_graph_passes(options):
        idle = GraphPass("idle", "place", lambda graph, context: graph)
        good = [GraphPass("drop_double_neg", "simplify", drop_double_neg), idle]
        return good if not chosen else [GraphPass(chosen[0], chosen[1], WRONG[chosen[0]])]
"""
"""Two passes, one of which does something; or, when `chosen` has its name and stage, a wrong one."""

MODEL = """
    import json
    import numpy as np
    from click.testing import CliRunner
    import dovetail
    from dovetail.cli import program
    from dovetail_ops_onnx.neg import Neg
    from dovetail_ops_onnx.relu import Relu

    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N"])
    model = g.model([g.node(Relu(), g.node(Neg(), g.node(Neg(), x)), outputs=["y"])])
"""


def test_a_pass_leaves_traces(site: Any, tmp_path: Path) -> None:
    site.plugin("hooks", "acme", PASSES, name="acme-passes")
    out = site.run(
        MODEL
        + """
    compiled = dovetail.Core().compile_model(model, "NUMPY")
    assert compiled([-1, 2])["y"].tolist() == [0, 2]
    rows = {one.name: one for one in compiled.report().passes if one.origin.startswith("acme")}

    def shown(*arguments):
        done = CliRunner().invoke(program, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    import onnx, os
    from onnx import helper
    os.chdir(os.environ["FOLDER"])
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in (("Neg", "x", "a"), ("Neg", "a", "b"), ("Relu", "b", "y"))]
    x, y = (helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, "double.onnx")
    print(json.dumps({
        "report": [[name, row.before, row.after, row.changed] for name, row in rows.items()],
        "explain": json.loads(shown("explain", "double.onnx", "-d", "NUMPY", "--json")),
        "text": shown("explain", "double.onnx", "-d", "NUMPY"),
        "info": json.loads(shown("plugins", "info", "acme-passes", "--json")),
        "info_text": shown("plugins", "info", "acme-passes"),
    }))
    """,
        FOLDER=str(tmp_path),
    )
    told = json.loads(out)
    assert told["report"] == [["drop_double_neg", 3, 1, True], ["idle", 1, 1, False]]
    assert told["explain"]["changed_by"] == ["drop_double_neg"]
    assert "drop_double_neg" in told["text"]
    (record,) = told["info"]["plugins"]
    assert record["passes"] == [{"pass": "drop_double_neg", "stage": "simplify"}, {"pass": "idle", "stage": "place"}]
    assert "drop_double_neg (stage simplify)" in told["info_text"]


def test_a_wrong_pass_is_an_error_that_names_it_and_the_way_round_it(site: Any) -> None:
    site.plugin("hooks", "acme", PASSES, name="acme-passes")
    out = site.run(
        MODEL
        + """
    import acme_passes

    told = {}
    for name in acme_passes.WRONG:
        for stage in ("bind", "simplify", "layout"):
            acme_passes.chosen[:] = name, stage
            core = dovetail.Core()
            try:
                core.compile_model(model, "NUMPY")([1, 2])
            except dovetail.errors.PluginError as error:
                told[f"{name} in {stage}"] = [error.message, error.hint]
            without = core.compile_model(model, "NUMPY", {"PASSES": f"-{name}"})
            assert without([-1, 2])["y"].tolist() == [0, 2]
    print(json.dumps(told))
    """
    )
    told = json.loads(out)
    said = {
        "raises": "raised ZeroDivisionError",
        "forgets": "returned NoneType, not a Graph",
        "drops_output": "changed the outputs",
        "drops_nodes": "made a graph that is not valid",
    }
    assert set(told) == {f"{name} in {stage}" for name in said for stage in ("bind", "simplify", "layout")}
    for where, (message, hint) in told.items():
        name = where.split()[0]
        assert message.startswith(f"graph pass '{name}' of acme-passes 1.0 "), message
        assert said[name] in message
        assert hint.startswith(f"leave it out with the property PASSES='-{name}'")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("GraphPass('bind', 'bind', lambda graph, context: graph)", "has the name of a pass of the core\n"),
        ("GraphPass('bind', 'bind', lambda graph, context: graph)", "without the package, set DOVETAIL_PLUGINS=-acme-passes"),
        ("GraphPass('a b', 'bind', lambda graph, context: graph)", "has the name 'a b'"),
        ("GraphPass('mine', 'bind', None)", "has for run a NoneType"),
        ("'mine'", "returned ['mine']"),
    ],
)
def test_passes_that_cannot_be_used(site: Any, made: str, message: str) -> None:
    """A second pass of a name ends the compilation; what is not a pass takes the plugin out, which says why."""
    from dovetail.errors import PluginError
    from dovetail.passes.pipeline import pipeline
    from dovetail.plugins import PluginManager

    source = f"from dovetail.passes import GraphPass\n@hookimpl\ndef dovetail_graph_passes(options):\n    return [{made}]\n"
    plugin = site.plugin("hooks", "acme", source, name="acme-passes")
    manager = PluginManager()
    try:
        pipeline(manager.graph_passes({}))
        told = manager.record(plugin).reason
    except PluginError as error:
        told = str(error)
    assert message in told
    assert "acme-passes" in told or manager.record(plugin).state == "failed"
