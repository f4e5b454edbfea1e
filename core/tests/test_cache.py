"""The cache of files: whole entries or none, whatever happens to the folder; several processes; a bound on its size."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

import dovetail.cache
from dovetail.cache import FileCache, cache_folder, cache_key, clear_cache, list_cache
from dovetail.errors import UsageError

A, B, C = (cache_key(name) for name in "abc")


@pytest.fixture(autouse=True)
def _default_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_CACHE_LIMIT", raising=False)


def test_an_entry_comes_back_and_can_be_replaced(tmp_path: Path) -> None:
    cache = FileCache("kernels", tmp_path)
    assert cache.get(A) is None
    cache.put(A, b"first")
    cache.put(A, b"second")
    cache.put(B, b"")
    assert (cache.get(A), cache.get(B), cache.get(C)) == (b"second", b"", None)
    assert FileCache("other", tmp_path).get(A) is None


def test_keys_tell_parts_and_versions_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({cache_key("ab", "c"), cache_key("a", "bc"), cache_key("abc"), cache_key("c", "ab")}) == 4
    assert cache_key("a") == A
    monkeypatch.setattr(dovetail.cache, "__version__", "0.0.9")
    assert cache_key("a") != A


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", "folder"])
def test_a_damaged_entry_is_a_miss_and_is_replaced(damage: str, tmp_path: Path) -> None:
    cache = FileCache("kernels", tmp_path)
    cache.put(A, b"content")
    path = tmp_path / "kernels" / A
    good = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
        assert cache.get(A) is None
        cache.put(A, b"content")
        assert cache.get(A) is None
        return
    path.write_bytes({"flip": good[:-1] + b"\x00", "cut": good[:-3], "empty": b"", "foreign": b"PK" + good}[damage])
    assert cache.get(A) is None
    cache.put(A, b"content")
    assert path.read_bytes() == good


@pytest.mark.parametrize("call", ["os.replace", "tempfile.mkstemp", "os.fdopen"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_disk_leaves_no_torn_entry(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **_: object) -> None:
        if isinstance(arguments[0] if arguments else None, int):
            os.close(arguments[0])
        raise OSError(code, os.strerror(code))

    cache = FileCache("kernels", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(call, refuse)
        cache.put(A, b"1")
    assert [*tmp_path.rglob("*")] == [tmp_path / "kernels"]
    assert cache.get(A) is None


def test_a_disk_that_fills_while_an_entry_is_written(tmp_path: Path) -> None:
    """The process may write no file of more than 4096 bytes: the write itself fails, as on a full disk."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from dovetail.cache import FileCache\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "cache = FileCache('kernels', Path(sys.argv[1]))\n"
        "cache.put('0' * 64, bytes(10_000))\n"
        "cache.put('1' * 64, bytes(1_000))\n"
        "print(cache.get('0' * 64), len(cache.get('1' * 64)))\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["None", "1000"]
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == ["1" * 64]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("a file")
    cache = FileCache("kernels", tmp_path)
    cache.put(A, b"1")
    assert cache.get(A) is None
    assert list_cache(tmp_path) == ()
    assert list_cache(tmp_path / "nowhere") == ()


def test_an_entry_that_cannot_be_touched_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    cache = FileCache("kernels", tmp_path)
    cache.put(A, b"1")
    monkeypatch.setattr("dovetail.cache.os.utime", refuse)
    assert cache.get(A) == b"1"


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOVETAIL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without an entry in the password database
    assert cache_folder() is None
    cache = FileCache("kernels")
    cache.put(A, b"1")
    assert cache.get(A) is None
    assert not cache.keeps


def test_the_folder_is_chosen_or_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen"
    monkeypatch.delenv("DOVETAIL_CACHE_DIR")
    assert cache_folder() == platformdirs.user_cache_path("dovetail", appauthor=False, opinion=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_the_folder_on_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOVETAIL_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "dovetail"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == tmp_path / "me" / ".cache" / "dovetail"


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = FileCache("kernels", tmp_path, limit=3_500)
    for age, key in ((300, A), (200, B)):
        cache.put(key, bytes(1_000))
        os.utime(tmp_path / "kernels" / key, times=(1e9 - age, 1e9 - age))
    assert cache.get(A) is not None  # used now: B is the oldest
    cache.put(C, bytes(2_000))
    assert [cache.get(key) is not None for key in (A, B, C)] == [True, False, True]
    cache.put(B, bytes(4_000))
    assert cache.get(B) is None  # larger than all there may be
    assert cache.get(C) is not None


def test_other_entries_are_read_only_when_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a full cache takes longer than making what is put there."""
    read: list[str] = []
    ours = dovetail.cache._is_ours
    monkeypatch.setattr("dovetail.cache._is_ours", lambda path: read.append(path) or ours(path))
    cache = FileCache("kernels", tmp_path, limit=2_500)
    cache.put(A, bytes(1_000))
    cache.put(B, bytes(1_000))
    assert not read
    cache.put(C, bytes(1_000))
    assert read
    assert sum(cache.get(key) is not None for key in (A, B, C)) == 2


def test_a_cache_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    assert FileCache("kernels", tmp_path).keeps
    nothing = FileCache("kernels", tmp_path, limit=0)
    nothing.put(A, b"")
    assert (nothing.keeps, nothing.get(A)) == (False, None)


def test_the_limit_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", "1500")
    cache = FileCache("kernels", tmp_path)
    cache.put(A, bytes(1_000))
    cache.put(B, bytes(1_000))
    assert (cache.get(A), cache.get(B)) == (None, bytes(1_000))
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", "1 GB")
    with pytest.raises(UsageError, match="DOVETAIL_CACHE_LIMIT is '1 GB'"):
        FileCache("kernels", tmp_path)


def test_four_processes_write_and_read_at_once(tmp_path: Path) -> None:
    """All write the same keys, over and over, while the limit throws entries out: whoever reads gets nothing or all."""
    script = (
        "import random, sys\n"
        "from pathlib import Path\n"
        "from dovetail.cache import FileCache, cache_key\n"
        "cache, me = FileCache('kernels', Path(sys.argv[1]), limit=60_000), int(sys.argv[2])\n"
        "rng, found = random.Random(me), 0\n"
        "for _ in range(150):\n"
        "    number = rng.randrange(6)\n"
        "    key, content = cache_key(str(number)), bytes([number]) * (9_000 + 3_000 * number)\n"
        "    if rng.random() < 0.5:\n"
        "        cache.put(key, content)\n"
        "    else:\n"
        "        got = cache.get(key)\n"
        "        assert got is None or got == content, (number, len(got))\n"
        "        found += got is not None\n"
        "assert found > 5, found\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen([*arguments, str(i)], stderr=subprocess.PIPE, text=True) for i in range(4)]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 4
    entries = list_cache(tmp_path)
    assert 0 < sum(entry.nbytes for entry in entries) <= 60_000 + 4 * 24_100  # each writer may be one entry ahead
    assert not [*tmp_path.rglob(".writing-*")]


def test_listing_and_clearing_leave_other_files_alone(tmp_path: Path) -> None:
    FileCache("kernels", tmp_path).put(A, b"1")
    FileCache("tuning", tmp_path).put(B, b"22")
    foreign = [tmp_path / "notes", tmp_path / "kernels" / "notes", tmp_path / "kernels" / ("0" * 64)]
    for path in foreign:
        path.write_bytes(b"mine")
    with contextlib.suppress(OSError):  # no links on this file system
        (tmp_path / "linked").symlink_to(tmp_path / "kernels")
    assert [(e.section, e.path.name) for e in list_cache(tmp_path)] == [("kernels", A), ("tuning", B)]
    assert [e.section for e in clear_cache(tmp_path, "tuning")] == ["tuning"]
    assert [e.section for e in clear_cache(tmp_path)] == ["kernels"]
    assert list_cache(tmp_path) == ()
    assert all(path.read_bytes() == b"mine" for path in foreign)


def test_what_a_dead_process_left_is_cleared(tmp_path: Path) -> None:
    FileCache("kernels", tmp_path).put(A, b"1")
    dead, alive = (tmp_path / "kernels" / f".writing-{name}" for name in ("dead", "alive"))
    for path in (dead, alive):
        path.write_bytes(b"half of it")
    os.utime(dead, times=(1e9, 1e9))
    clear_cache(tmp_path)
    assert (dead.exists(), alive.exists()) == (False, True)


def test_a_file_is_no_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_bytes(b"mine")
    assert FileCache("kernels", tmp_path / "cache").get(A) is None
    assert caplog.messages == [f"the cache folder {tmp_path / 'cache'} is not used: it is not a folder; name another"]


@pytest.mark.parametrize("at", ["", "kernels"])
def test_a_folder_that_everybody_may_write_to_is_not_used(at: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "cache"
    FileCache("kernels", root).put(A, b"planted")
    (root / at).chmod(0o777)
    dovetail.cache._is_private.cache_clear()
    caches = [FileCache("kernels", root) for _ in range(2)]
    caches[0].put(B, b"mine")
    assert [(cache.keeps, cache.get(A)) for cache in caches] == [(False, None)] * 2
    assert [path.name for path in (root / "kernels").iterdir()] == [A]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [f"the cache folder {root / at} is not used"]


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr("dovetail.cache.os.geteuid", lambda: owner + 1)
    assert not FileCache("kernels", tmp_path).keeps
    assert f"user {owner} owns it" in caplog.text


def test_a_fifo_in_the_place_of_an_entry_is_a_miss_and_is_not_waited_for(tmp_path: Path) -> None:
    cache = FileCache("kernels", tmp_path)
    cache.put(A, b"1")
    (tmp_path / "kernels" / A).unlink()
    os.mkfifo(tmp_path / "kernels" / A)
    assert cache.get(A) is None


def test_a_device_in_the_place_of_an_entry_is_not_read(tmp_path: Path) -> None:
    cache = FileCache("kernels", tmp_path)
    cache.put(A, b"1")
    (tmp_path / "kernels" / A).unlink()
    (tmp_path / "kernels" / A).symlink_to("/dev/zero")
    assert cache.get(A) is None


def test_an_entry_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    cache = FileCache("mine", tmp_path, limit=100)
    assert cache.put_pieces("a" * 64, [b"x" * 50, b"x" * 50]) == ""
    assert cache.put_pieces("b" * 64, [b"x" * 50, b"x" * 51]) == "it has more than 100 bytes"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["a" * 64]
