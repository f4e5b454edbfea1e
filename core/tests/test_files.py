"""Files are written whole or not at all, never through a planted link, and errors name the file that was requested."""

import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from dovetail._files import user_folder, write_file, written_whole
from dovetail.errors import UsageError


@pytest.mark.parametrize("base", [None, "", "relative", "~/x", "/", "/a b/../ü"])
@pytest.mark.parametrize("home", [None, "/me", "/"])
def test_the_users_folders_are_those_of_platformdirs(monkeypatch: pytest.MonkeyPatch, home: str | None, base: str | None) -> None:
    """None: the variable is not set, and the home is that of the password database."""
    for name, value in (("HOME", home), ("XDG_CACHE_HOME", base), ("XDG_CONFIG_HOME", base)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert user_folder("cache") == platformdirs.user_cache_path("dovetail", appauthor=False, opinion=False)
    assert user_folder("config") == platformdirs.user_config_path("dovetail", appauthor=False, roaming=True)


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_file(path, "größer")
    assert path.read_bytes() == "größer".encode()
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    write_file(tmp_path / "a", b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_file(tmp_path / ("n" * 255), b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"


def test_a_link_given_by_the_user_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", b"new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "real").read_bytes()) == (True, b"new")


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    guessed = b"guessed!"
    monkeypatch.setattr(os, "urandom", lambda n: guessed)
    planted = tmp_path / f".dovetail-{guessed.hex()}"
    planted.symlink_to(victim)
    with pytest.raises(FileExistsError) as caught:
        write_file(tmp_path / "a", b"mine")
    assert (caught.value.filename, victim.read_bytes()) == (str(tmp_path / "a"), b"precious")
    assert planted.is_symlink(), "what somebody else made stays"
    assert not (tmp_path / "a").exists()


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    writing = written_whole(path)
    writing.__enter__().write(b"half")
    assert not writing.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert ([p.name for p in tmp_path.iterdir()], path.read_bytes()) == (["a"], b"old")


def test_an_error_about_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, written_whole(tmp_path / "a"):
        (tmp_path / "source").read_bytes()
    assert caught.value.filename == str(tmp_path / "source")


@pytest.mark.parametrize(("make", "message"), [(Path.mkdir, "it is a folder"), (os.mkfifo, "it is a device or a pipe")])
def test_what_is_not_a_file_is_refused(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path / "a")
    with pytest.raises(UsageError, match=message):
        write_file(tmp_path / "a", b"")
    with pytest.raises(UsageError, match=r"the folder .* does not exist"):
        write_file(tmp_path / "nowhere" / "a", b"")


def test_standard_output_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"'-' cannot be written: .* standard output"):
        write_file(Path("-"), b"")
    assert list(tmp_path.iterdir()) == []
    write_file(tmp_path / "-", b"")  # with a folder it is a name as any other


def test_a_full_disk_leaves_no_file_of_the_command_line(tmp_path: Path) -> None:
    """The process may write no file of more than 4096 bytes: the write itself fails, as on a full disk."""
    script = (
        "import resource, signal, sys\n"
        "import numpy as np\n"
        "from dovetail.cli._inputs import write_npz\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_npz(sys.argv[1], {'y': np.zeros(10_000)})\n"
        "except OSError as error:\n"
        "    print(error.filename)\n"
    )
    target = tmp_path / "results.npz"
    run = subprocess.run([sys.executable, "-c", script, str(target)], capture_output=True, text=True, check=True)
    assert run.stdout == f"{target}\n"
    assert list(tmp_path.iterdir()) == []
