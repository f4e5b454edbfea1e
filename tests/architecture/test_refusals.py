"""Refusals are false, as what accepts a node is true: no condition may take one for the absence of one."""

import ast
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _lost_refusals(sources: Collection[str]) -> list[str]:
    """Conditions on functions that return `Refusal | None`: both are false, so `a() or b()` drops the refusal of a."""
    kinds = (ast.FunctionDef, ast.BoolOp, ast.If, ast.IfExp)
    nodes = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    returned: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            is_union = isinstance(node.returns, ast.BinOp)
            returned.setdefault(node.name, set()).add(ast.unparse(node.returns) if is_union else "")

    def is_false(node: ast.AST) -> bool:
        while isinstance(node, ast.NamedExpr | ast.UnaryOp):
            node = node.value if isinstance(node, ast.NamedExpr) else node.operand
        called = node.func if isinstance(node, ast.Call) else None
        return returned.get(getattr(called, "attr", getattr(called, "id", ""))) == {"Refusal | None"}

    found = []
    for node in nodes:
        asked = node.values[:-1] if isinstance(node, ast.BoolOp) else [node.test] if isinstance(node, ast.If | ast.IfExp) else []
        found += [ast.unparse(node) for one in asked if is_false(one)]
    return found


def test_no_condition_drops_a_refusal() -> None:
    define = "def refuse(node) -> Refusal | None: ...\n"
    assert _lost_refusals([define + "refuse(a) or refuse(b)", "if not node.refuse(a): pass", "x = 1 if (r := refuse(a)) else 2"])
    assert _lost_refusals([define + "refuse(a) is None or refuse(b)"]) == []
    files = sorted(path for pattern in ("core/src", "plugins/*/src", "contrib/*/src") for path in ROOT.glob(f"{pattern}/**/*.py"))
    assert len(files) > 1000
    assert _lost_refusals([path.read_text(encoding="utf-8") for path in files]) == []
