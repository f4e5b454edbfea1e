"""requirements.txt: each package of the repository, with extras that the package defines; pip only warns of others."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_package_is_listed_with_extras_that_it_defines() -> None:
    lines = re.findall(r"^-e \./([\w/]+)(?:\[([\w,]+)\])?$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    packages = {
        "core",
        *(str(p.parent.relative_to(ROOT)) for d in ("plugins", "contrib") for p in ROOT.glob(f"{d}/*/pyproject.toml")),
    }
    assert {folder for folder, _ in lines} == packages
    for folder, extras in lines:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert set(filter(None, extras.split(","))) <= project.get("optional-dependencies", {}).keys(), folder
