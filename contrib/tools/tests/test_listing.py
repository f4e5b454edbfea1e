"""`ops`: names by translation, and the description of one operator."""

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

PACK = '''
from dovetail.op import FLOATS, Operator, Translation

class Doubled(Operator):
    """x + x."""

    domain, inputs, types = "com.acme", ("X: T",), {"T": FLOATS}
    translations = (Translation(domain="other.lib", op_type="Twice"),)

    def reference(self, X):
        return X + X
'''


def test_ops_lists_the_names_that_a_class_translates(invoke: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "pack.py").write_text(PACK)
    foreign = json.loads(invoke("ops", "-l", "pack.py", "--domain", "other.lib", "--json").stdout)["operators"]
    assert [(row["operator"], row["domain"], row["brings"]) for row in foreign] == [
        ("other.lib::Twice", "other.lib", ["another name of com.acme::Doubled"])
    ]
    own = json.loads(invoke("ops", "-l", "pack.py", "--domain", "com.acme", "--json").stdout)["operators"]
    assert [(row["operator"], row["brings"]) for row in own] == [("com.acme::Doubled", ["reference"])]
    every = json.loads(invoke("ops", "-l", "pack.py", "--json").stdout)["operators"]
    assert {"other.lib::Twice", "com.acme::Doubled"} <= {row["operator"] for row in every}


FULL = '''
from dovetail.op import FLOATS, INTEGERS, OpenCLKernel, Operator, Translation

class Blend(Operator):
    """X and Y, mixed.

    More about it.
    """

    domain, inputs, outputs = "com.acme", ("X: T", "Y?: T", "weights*: float32"), ("Z: T",)
    types = {"T": FLOATS | INTEGERS}
    translations = (Translation(domain="other.lib", op_type="Mix"),)
    kernels = (OpenCLKernel(source="__kernel void blend() {}", entry={"float32": "blend"}),)
    factor: float
    modes: tuple[str, ...] = ("linear",)

    def reference(self, X, Y, *weights):
        return X

class Blend_3(Blend):
    """As before, in one mode."""

    since, op_type, inputs, kernels = 3, "Blend", ("X: T",), ()
    translations = ()
    modes: tuple[str, ...] | None = None
    axis: int = -1
'''


def test_ops_describes_every_version_of_one_operator(invoke: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "pack.py").write_text(FULL)
    told = json.loads(invoke("ops", "-l", "pack.py", "com.acme::Blend", "--device", "NUMPY", "--json").stdout)["operators"]
    old, new = told
    assert [(one["since"], one["summary"]) for one in told] == [(1, "X and Y, mixed."), (3, "As before, in one mode.")]
    ports = [(p["name"], p["type"], p["optional"], p["variadic"], len(p["accepts"])) for p in (*old["inputs"], *old["outputs"])]
    assert ports == [
        ("X", "T", False, False, 12),
        ("Y", "T", True, False, 12),
        ("weights", "float32", False, True, 1),
        ("Z", "T", False, False, 12),
    ]
    assert {"bfloat16", "int64"} < set(old["inputs"][0]["accepts"])
    assert old["attributes"] == [
        {"name": "factor", "type": "float", "required": True, "default": None},
        {"name": "modes", "type": "tuple[str, ...]", "required": False, "default": ["linear"]},
    ]
    assert [(a["name"], a["default"]) for a in new["attributes"]] == [("factor", None), ("modes", None), ("axis", -1)]
    assert (old["names"], new["names"]) == (["other.lib::Mix"], [])
    assert (old["brings"], new["brings"]) == (["reference", "opencl kernel"], ["reference"])
    assert old["kernels"] == {"NUMPY": []}

    text = invoke("ops", "-l", "pack.py", "Blend", "--domain", "com.acme", "--device", "NUMPY").stdout
    for line in ("com.acme::Blend, from version 3", "weights (any number)", "Y (optional)", "other.lib::Mix", "required"):
        assert line in text


def test_ops_names_the_closest_operator(invoke: Callable[..., Result]) -> None:
    assert "no operator is called 'Convv'\n  Did you mean 'Conv'?" in invoke("ops", "Convv", code=1).stderr


def test_ops_knows_the_names_that_other_packs_translate(invoke: Callable[..., Result], tmp_path: Path) -> None:
    pack = PACK + "\nextra = Translation(domain='third.lib', op_type='Plus', to=Doubled)\n"
    (tmp_path / "pack.py").write_text(pack)
    (found,) = json.loads(invoke("ops", "-l", "pack.py", "Doubled", "--json").stdout)["operators"]
    assert found["names"] == ["other.lib::Twice", "third.lib::Plus"]
