"""The index: what is found on `sys.path`, in which order, and what a damaged installation does."""

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dovetail.plugins import discovery
from dovetail.plugins.records import PluginRecord

POINTS = {"devices": {"acme": "acme_device"}}


@pytest.fixture
def two_sites(site: Any, tmp_path: Path) -> tuple[Any, Any]:
    """Two folders in which plugins are looked for."""
    later = type(site)(tmp_path / "later")
    vars(discovery)["sys"].path.append(str(later.folder))
    return site, later


def only() -> PluginRecord:
    records = discovery.index()
    assert len(records) == 1, records
    return records[0]


def test_a_record_has_what_the_metadata_says(site: Any) -> None:
    site.metadata("Acme_Device", POINTS, version="2.5", requires=["dovetail<1,>=0.1", "dovetail-cpu-numpy>=7", "numpy"])
    record = only()
    assert record.id == "acme-device/devices/acme"
    assert (record.version, record.value, record.state) == ("2.5", "acme_device", "found")
    assert record.requires == ("dovetail<1,>=0.1",)
    assert record.location == str(site.folder)
    assert not record.editable


def test_metadata_is_read_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata("acme", POINTS)
    opened: list[str] = []

    def opening(path: Any, *args: Any, **named: Any) -> Any:
        opened.append(os.path.basename(path))
        return open(path, *args, **named)

    monkeypatch.setattr(discovery, "open", opening, raising=False)
    only()
    assert opened.count("METADATA") == opened.count("entry_points.txt") == 1


def test_records_are_sorted_and_only_groups_of_dovetail_count(site: Any) -> None:
    site.metadata("zebra", {"ops": {"z.dom": "zebra"}})
    site.metadata("acme", {"ops": {"b.dom": "b", "a.dom": "a"}, "frontends": {"ZZZ": "z"}})
    other = site.metadata("other", {})
    (other / "entry_points.txt").write_text("[console_scripts]\nx = dovetail.devices:x\n")
    assert [r.id for r in discovery.index()] == ["acme/frontends/zzz", "acme/ops/a.dom", "acme/ops/b.dom", "zebra/ops/z.dom"]


def test_the_index_is_kept_until_the_path_changes(site: Any) -> None:
    site.metadata("acme", POINTS)
    first = discovery.index()
    assert discovery.index() is first
    site.metadata("late", {"ops": {"late": "late"}})
    os.utime(site.folder, ns=(1, 1))
    assert [r.distribution for r in discovery.index()] == ["acme", "late"]


def test_uninstalling_removes_the_record_from_the_index(site: Any) -> None:
    info = site.metadata("acme", POINTS)
    assert only().distribution == "acme"
    for file in info.iterdir():
        file.unlink()
    info.rmdir()
    os.utime(site.folder, ns=(1, 1))
    assert discovery.index() == ()


def test_an_empty_metadata_folder_hides_nothing(two_sites: tuple[Any, Any]) -> None:
    first, second = two_sites
    (first.folder / "acme-9.0.dist-info").mkdir()
    second.metadata("acme", POINTS)
    assert (only().version, only().duplicates) == ("1.0", ())


def test_a_half_removed_copy_is_reported_with_the_line_that_mends_it(site: Any) -> None:
    (site.metadata("acme", POINTS) / "METADATA").unlink()
    record = only()
    assert record.state == "failed"
    assert "METADATA is missing" in record.reason
    assert record.hint == "pip install --force-reinstall acme"


def test_a_suffix_with_its_dot(site: Any) -> None:
    site.metadata("acme", {"frontends": {".acme": "acme"}})
    record = only()
    assert (record.state, record.reason) == (
        "failed",
        "the entry point '.acme = acme' is for a suffix with its dot; accepted: 'acme'",
    )


def test_leftovers_of_pip_are_ignored(site: Any) -> None:
    site.metadata("acme", POINTS).rename(site.folder / "~cme-1.0.dist-info")
    assert discovery.index() == ()


@pytest.mark.parametrize("editable_first", [True, False])
def test_editable_beside_plain_copy(two_sites: tuple[Any, Any], tmp_path: Path, editable_first: bool) -> None:
    project = tmp_path / "my project"
    first, second = two_sites
    first.metadata("acme", POINTS, version="1.0", editable=project if editable_first else None)
    second.metadata("acme", POINTS, version="2.0", editable=None if editable_first else project)
    record = only()
    assert record.version == "1.0"
    assert record.editable is editable_first
    assert record.location == str(project if editable_first else first.folder)
    assert record.duplicates == (f"2.0 in {second.folder}",)


def test_a_first_copy_without_plugin_hides_a_later_one_with_it(two_sites: tuple[Any, Any]) -> None:
    first, second = two_sites
    first.metadata("acme", {})
    second.metadata("acme", POINTS, version="2.0")
    assert discovery.index() == ()


@pytest.mark.parametrize("backwards", [True, False])
def test_of_two_versions_in_one_folder_the_newest_counts(site: Any, monkeypatch: pytest.MonkeyPatch, backwards: bool) -> None:
    for version in ("1.9", "1.10", "not.a.version"):
        site.metadata("acme", {"devices": {"acme": f"acme_{version.replace('.', '_')}"}}, version=version)
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: sorted(real(folder), reverse=backwards))
    assert only().value == "acme_1_10"
    assert [duplicate.split()[0] for duplicate in only().duplicates] == ["1.9", "not.a.version"]


@pytest.mark.parametrize("backwards", [True, False])
def test_of_two_formats_of_one_version_the_wheel_counts(site: Any, monkeypatch: pytest.MonkeyPatch, backwards: bool) -> None:
    for suffix in ("egg-info", "dist-info"):
        site.metadata("acme", {"devices": {"acme": f"from_{suffix.replace('-', '_')}"}}, suffix=suffix)
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: sorted(real(folder), reverse=backwards))
    assert only().value == "from_dist_info"


def test_one_folder_twice_on_the_path_is_one_installation(two_sites: tuple[Any, Any], tmp_path: Path) -> None:
    two_sites[0].metadata("acme", POINTS)
    (tmp_path / "link").symlink_to(two_sites[0].folder)
    vars(discovery)["sys"].path.append(str(tmp_path / "link"))
    assert only().duplicates == ()


def test_egg_info_and_zip_archives_are_read(two_sites: tuple[Any, Any], tmp_path: Path) -> None:
    first, _ = two_sites
    first.metadata("old-style", {"ops": {"old": "old"}}, suffix="egg-info")
    info = first.metadata("zipped", {"ops": {"zipped": "zipped"}}, version="3.0")
    with zipfile.ZipFile(tmp_path / "plugins.zip", "w") as archive:
        for file in info.iterdir():
            archive.write(file, f"{info.name}/{file.name}")
            file.unlink()
    info.rmdir()
    vars(discovery)["sys"].path.append(str(tmp_path / "plugins.zip"))
    assert [(r.id, r.version, r.requires) for r in discovery.index()] == [
        ("old-style/ops/old", "1.0", ("dovetail>=0.1",)),
        ("zipped/ops/zipped", "3.0", ("dovetail>=0.1",)),
    ]


@pytest.mark.parametrize("line", ["acme", "acme =", "= acme", "acme = 7up", "acme = mod:", "acme = a b", "acme = mod [extra]"])
def test_a_malformed_entry_point_fails_alone(site: Any, line: str) -> None:
    info = site.metadata("acme", {})
    (info / "entry_points.txt").write_text(f"[dovetail.ops]\n{line}\n# comment\ngood = mod.sub:obj.attribute\n")
    states = {r.key: r.state for r in discovery.index()}
    assert states.pop("good") == "found"
    assert list(states.values()) == ["failed"]


def test_an_entry_point_declared_twice_fails(site: Any) -> None:
    (site.metadata("acme", {}) / "entry_points.txt").write_text("[dovetail.devices]\nacme = one\nACME = two\n")
    assert (only().state, only().reason) == ("failed", "the entry point 'acme' is declared twice")


def test_an_unknown_group_is_incompatible_with_a_suggestion(site: Any) -> None:
    site.metadata("acme", {"device": {"acme": "acme"}})
    assert only().state == "incompatible"
    assert "Did you mean 'dovetail.devices'?" in only().hint


def test_undecodable_metadata_does_not_stop_the_scan(site: Any) -> None:
    info = site.metadata("acme", POINTS)
    (info / "entry_points.txt").write_bytes(b"\xff\xfe[dovetail.devices]\n\xff = x\n")
    (info / "direct_url.json").write_text("{not json")
    site.metadata("good", {"ops": {"good": "good"}})
    assert "good/ops/good" in [r.id for r in discovery.index()]


@pytest.mark.parametrize(
    "text", ["dovetail", "Dovetail<1", "dovetail (>=0.1)", "dovetail[testing]; extra == 'test'", "dovetail ; extra=='x'"]
)
def test_requirements_on_dovetail_itself(site: Any, text: str) -> None:
    others = ["dovetail-tools<1", "dovetail_tools", "dovetail.tools", "dovetails", "dovetail -x", "adovetail"]
    site.metadata("Acme_Device", POINTS, requires=[*others, text])
    assert only().requires == (text,)
