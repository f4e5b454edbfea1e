"""constraints.txt: every third-party package that requirements.txt installs, in a version that the packages accept."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def pinned() -> dict[str, list[Requirement]]:
    """Package -> its lines, which differ in their markers."""
    found = defaultdict(list)
    for block in re.split(r"\n(?=\S)", TEXT):
        if not block.startswith("#"):
            requirement = Requirement(block.partition(" \\\n")[0])
            found[canonicalize_name(requirement.name)].append(requirement)
    return found


def needed() -> Iterator[Requirement]:
    """The requirements of the packages with the extras that requirements.txt names."""
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if (named := re.fullmatch(r"-e \./([\w/]+)(?:\[([\w,]+)\])?", line)) is not None:
            project = tomllib.loads((ROOT / named[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            extras = filter(None, (named[2] or "").split(","))
            lists = (project.get("dependencies", []), *(project["optional-dependencies"][extra] for extra in extras))
            yield from (Requirement(text) for texts in lists for text in texts)


def test_every_requirement_is_pinned_to_a_version_that_it_accepts() -> None:
    pins = pinned()
    others = [one for one in needed() if not canonicalize_name(one.name).startswith("dovetail")]
    assert len({one.name for one in others}) > 8
    for requirement in others:
        versions = [next(iter(pin.specifier)).version for pin in pins[canonicalize_name(requirement.name)]]
        assert versions, f"{requirement.name} is missing: run .ci/constraints"
        assert any(requirement.specifier.contains(version) for version in versions), f"{requirement}: run .ci/constraints"


def test_every_pin_is_exact_and_has_hashes() -> None:
    pins = [pin for pins in pinned().values() for pin in pins]
    assert all([one.operator for one in pin.specifier] == ["=="] for pin in pins)
    blocks = [block for block in re.split(r"\n(?=\S)", TEXT) if not block.startswith("#")]
    assert len(blocks) == len(pins)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", block) for block in blocks)


def test_no_registry_is_named() -> None:
    assert not re.search(r"://|^\s*-", TEXT.replace("    --hash=", ""), re.MULTILINE)
