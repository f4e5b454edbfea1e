"""`ops` with names by translation."""

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
