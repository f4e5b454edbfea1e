"""The program as a whole: exit codes, errors, help, start-up, commands of plugins."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

import dovetail
from dovetail.cli import program
from dovetail.errors import DovetailError

COMMANDS = ["devices", "plugins", "run"]
ADDED = ["bench", "cache", "compare", "compile", "convert", "explain", "info", "ops", "tune", "where"]
"""Commands of other packages of this repository that were the core's once."""
BELOW = {
    "cache": ["clear", "list", "path"],
    "plugins": ["conflicts", "doctor", "info", "list", "manifest", "test", "which"],
}
LEAVES = [[n] for n in COMMANDS + ADDED if n not in BELOW] + [[name, below] for name in BELOW for below in BELOW[name]]

Invoke = Callable[..., Result]
Program = Callable[..., "subprocess.CompletedProcess[str]"]


def test_entry_point_is_installed() -> None:
    (script,) = (e for e in entry_points(group="console_scripts") if e.name == "dovetail")
    assert script.value == "dovetail.cli:main"


def test_the_module_is_the_program() -> None:
    command = [sys.executable, "-W", "error", "-m", "dovetail", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.split()[-1]) == (0, dovetail.__version__), done.stderr


def test_help_lists_the_commands(invoke: Invoke) -> None:
    text = invoke("--help").stdout
    commands = text.partition("Commands:")[2]
    listed = re.findall(r"^  (\w+) +\w", commands, re.MULTILINE)
    assert listed == sorted(listed)
    assert [name for name in listed if name not in program.added()] == COMMANDS
    assert {*ADDED} <= {*listed}
    assert "..." not in commands, "the first sentence of a command's help fits into its line"


@pytest.mark.parametrize("group", BELOW)
def test_help_of_a_group_lists_its_commands(invoke: Invoke, group: str) -> None:
    commands = invoke(group, "--help").stdout.partition("Commands:")[2]
    assert re.findall(r"^  ([\w-]+) +\w", commands, re.MULTILINE) == BELOW[group]
    assert "..." not in commands


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_has_an_example_and_fits(invoke: Invoke, words: list[str]) -> None:
    text = invoke(*words, "--help").stdout
    assert "--json" in text
    assert "JSON: {" in text
    assert f"Example:\n    dovetail {' '.join(words)}" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_example_in_the_help_parses(words: list[str]) -> None:
    """Every option of the examples exists: the parser gets to the missing model, or the command is not run at all."""
    text = CliRunner().invoke(program, [*words, "--help"]).stdout
    examples = text.partition("Example:\n")[2].strip().splitlines()
    assert examples
    for line in examples:
        first, *rest = line.split()
        assert first == "dovetail"
        command: Any = program
        for word in words:
            command = command.get_command(None, word)
            rest.remove(word)
        context = command.make_context("example", rest)
        assert context.params


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["devces"], "Unknown command 'devces'. Did you mean 'devices'?"),
        (["devices", "--jsn"], "No such option"),
        (["plugins", "lst"], "Unknown command 'plugins lst'. Did you mean 'list'?"),
        (["cache", "clr"], "No such command 'clr'"),
        (["run"], "Missing argument 'MODEL'"),
        (["bench", "m.onnx", "-n", "0"], "0 is not in the range"),
        (["bench", "m.onnx", "-t", "0"], "0.0 is not in the range"),
        (["run", "m.onnx", "-l", "missing.py"], "does not exist"),
    ],
)
def test_usage_errors_exit_with_2(invoke: Invoke, arguments: list[str], message: str) -> None:
    result = invoke(*arguments, code=2)
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.parametrize("group", BELOW)
def test_a_group_without_a_command_shows_its_help(group: str) -> None:
    shown = CliRunner().invoke(program, [group], prog_name="dovetail").output
    assert shown.startswith(f"Usage: dovetail {group} [OPTIONS] COMMAND [ARGS]...\n\n")
    assert "Error" not in shown


def test_failures_exit_with_1_and_one_message(invoke: Invoke) -> None:
    result = invoke("run", "model.onx", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: no installed frontend reads .onx files\n")
    assert "Did you mean 'onnx'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_file_is_a_failure(invoke: Invoke) -> None:
    result = invoke("info", "absent.onnx", code=1)
    assert "absent.onnx" in result.stderr
    assert "Traceback" not in result.stderr


def test_errors_of_the_system_name_the_file_first(invoke: Invoke, tmp_path: Path) -> None:
    missing = tmp_path / "absent.npz"
    model = tmp_path / "m.onnx"
    node = helper.make_node("Relu", ["x"], ["y"])
    info = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), ir_version=8), model)
    assert invoke("run", model, "-i", missing, code=1).stderr == f"Error: {missing}: No such file or directory\n"
    shown = invoke("run", model, "-i", "random", "-o", tmp_path / "no" / "y.npz", code=1).stderr
    assert "does not exist" in shown


def test_debug_raises(tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["run", str(tmp_path / "model.onx"), "--debug"])
    assert isinstance(result.exception, DovetailError)


def test_debug_prints_the_traceback(dovetail: Program) -> None:
    done = dovetail("run", "model.onx", "--debug", code=1)
    assert "Traceback (most recent call last)" in done.stderr
    assert "UnknownFormat" in done.stderr


def test_control_characters_in_errors_are_escaped(invoke: Invoke) -> None:
    result = invoke("run", "\x1b[31mred.onx\x1b[0m", "-d", "\x1b[31mred", code=1)
    assert "\x1b" not in result.stderr


def test_version(invoke: Invoke) -> None:
    assert re.fullmatch(r"dovetail, version \d+\.\d+\.\d+\n", invoke("--version").stdout)


def modules_after(folder: Path, *arguments: str) -> tuple[set[str], str]:
    """The modules that a command has imported at its end, and what it wrote to stderr."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sorted(sys.modules), sep='\\n', file=open('modules', 'w')))\n"
        "from dovetail.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=True
    )
    return set((folder / "modules").read_text().split()), done.stderr


def test_listing_plugins_imports_none_and_no_numpy(dovetail: Program, tmp_path: Path) -> None:
    modules, remarks = modules_after(tmp_path, "plugins", "list")
    listed = json.loads(dovetail("plugins", "list", "--json").stdout)["plugins"]
    assert len(listed) >= 2
    shown = dovetail("plugins", "list").stdout
    assert all(plugin["distribution"] in shown for plugin in listed)
    plugin_modules = {plugin["value"].partition(":")[0].partition(".")[0] for plugin in listed}
    assert not modules & (plugin_modules | {"numpy", "onnx", "pluggy"})
    assert "No plugin was imported" in remarks


def test_help_lists_the_commands_of_plugins_without_importing_them(dovetail: Program, tmp_path: Path) -> None:
    modules, _ = modules_after(tmp_path, "--help")
    assert not [name for name in modules if name.startswith(("dovetail_", "numpy", "pluggy"))], "their manifests are read"
    assert "demo" in dovetail("--help").stdout


def test_native_crashes_name_the_code_that_called(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text("import os\n\n\ndef npu_probe():\n    os.abort()\n\n\nnpu_probe()\n")
    code = "import sys\nfrom dovetail.cli import main\nsys.argv = ['dovetail', 'ops', '-l', 'crashing.py']\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode < 0
    assert re.search(r'crashing.py", line 5 in npu_probe', done.stderr)


def test_narrow_encodings_do_not_end_the_program(dovetail: Program) -> None:
    done = dovetail("plugins", "list", PYTHONIOENCODING="ascii")
    assert "Plugins" in done.stdout


def test_closed_pipe_is_no_traceback(dovetail: Program, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from dovetail.cli import main; main()", "ops", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(600)
    assert "Traceback" not in errors


PLUGIN = """
import click
from dovetail.hookspecs import hookimpl
dovetail_api = "1.0"

@hookimpl
def dovetail_add_commands(cli):
    {body}
"""

GREET = "cli.add_command(click.Command('greet', callback=lambda: print('hello'), help='Say hello.'))"
MINE = "cli.add_command(click.Command('devices', callback=lambda: print('mine'), help='Mine.'))"


@pytest.fixture
def with_hooks(tmp_path: Path) -> Callable[[str], str]:
    """Write a plugin that adds commands; returns a PYTHONPATH that finds it."""

    def write(body: str) -> str:
        site = tmp_path / "site"
        info = site / "fake_commands-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-commands\nVersion: 1.0\nRequires-Dist: dovetail>=0.1\n")
        (info / "entry_points.txt").write_text("[dovetail.hooks]\nfake = fake_commands\n")
        (site / "fake_commands.py").write_text(PLUGIN.format(body=body))
        return os.pathsep.join([str(site), *filter(None, sys.path)])

    return write


def test_plugins_add_commands(dovetail: Program, with_hooks: Callable[[str], str]) -> None:
    path = with_hooks(GREET)
    assert dovetail("greet", PYTHONPATH=path).stdout == "hello\n"
    assert re.search(r"^  greet +Say hello\.$", dovetail("--help", PYTHONPATH=path).stdout, re.MULTILINE)
    assert "Did you mean 'greet'?" in dovetail("gret", PYTHONPATH=path, code=2).stderr


LISTED = """{"format": 1, "plugins": {"hooks/fake": ["greet: Say hello.", "plugins greet: Say hello to plugins.",
"run --greet: Say hello first."]}}"""
GREETS = "[cli.add_command(click.Command(n, callback=lambda: print('hello'), help='Hi.'), n) for n in ('greet', 'plugins greet')]"


@pytest.fixture
def with_manifest(tmp_path: Path, with_hooks: Callable[[str], str]) -> Callable[[str], str]:
    """As `with_hooks`, for a package whose manifest lists `LISTED`."""

    def write(body: str) -> str:
        path = with_hooks(body)
        package = tmp_path / "site" / "fake_commands"
        package.mkdir()
        package.with_suffix(".py").rename(package / "__init__.py")
        (package / "dovetail-manifest.json").write_text(LISTED)
        return path

    return write


def test_commands_of_a_manifest_are_listed_without_an_import(dovetail: Program, with_manifest: Callable[[str], str]) -> None:
    path = with_manifest("")
    (Path(path.partition(os.pathsep)[0]) / "fake_commands" / "__init__.py").write_text("raise SystemExit('imported')")
    done = dovetail("--help", PYTHONPATH=path)
    assert re.search(r"^  greet +Say hello\.$", done.stdout, re.MULTILINE)
    assert not done.stderr
    assert re.search(r"^  greet +Say hello to plugins\.$", dovetail("plugins", "--help", PYTHONPATH=path).stdout, re.MULTILINE)
    assert re.search(r"^ +--greet +Say hello first\.$", dovetail("run", "--help", PYTHONPATH=path).stdout, re.MULTILINE)
    assert "imported" not in dovetail("devices", PYTHONPATH=path).stderr


def test_commands_of_a_manifest_run(dovetail: Program, with_manifest: Callable[[str], str]) -> None:
    path = with_manifest(GREETS)
    assert dovetail("greet", PYTHONPATH=path).stdout == "hello\n"
    assert dovetail("plugins", "greet", PYTHONPATH=path).stdout == "hello\n"
    assert "Did you mean 'greet'?" in dovetail("plugins", "gret", PYTHONPATH=path, code=2).stderr


def test_a_command_that_the_manifest_lacks_runs(dovetail: Program, with_manifest: Callable[[str], str]) -> None:
    path = with_manifest(GREETS.replace("'greet', 'plugins", "'newer', 'plugins"))
    assert dovetail("newer", PYTHONPATH=path).stdout == "hello\n"
    assert "Unknown command 'greet'" in dovetail("greet", PYTHONPATH=path, code=2).stderr


OPTION = """
    for name, option in ((name, option) for name in ("run", "where") for option in ("--extra", "--more")):
        parameters = [click.Option([option]), click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)]
        command = click.Command(f"{{name}} {{option}}", params=parameters, callback=lambda **given: print(sorted(given.items())))
        command.ignore_unknown_options = option == "--more"
        cli.add_command(command)
"""


@pytest.mark.parametrize("name", ["run", "where"], ids=["built in", "of a plugin"])
def test_plugins_add_options_to_commands(dovetail: Program, with_hooks: Callable[[str], str], name: str) -> None:
    path = with_hooks(OPTION.strip().replace("{{", "{").replace("}}", "}"))
    assert dovetail(name, "Conv", "--extra", "1", PYTHONPATH=path).stdout == "[('extra', '1'), ('rest', ('Conv',))]\n"
    assert dovetail(name, "--extra=1", "Conv", PYTHONPATH=path).stdout == "[('extra', '1'), ('rest', ('Conv',))]\n"
    # Of two the one that hands the other on.
    both = dovetail(name, "--extra", "1", "--more", "2", PYTHONPATH=path).stdout
    assert both == "[('more', '2'), ('rest', ('--extra', '1'))]\n"
    assert "No such option '--other'" in dovetail(name, "Conv", "--other", PYTHONPATH=path, code=2).stderr
    assert re.search(r"With installed packages:\n(?s:.*) --extra +\n +--more", dovetail(name, "--help", PYTHONPATH=path).stdout)
    assert "--extra" not in dovetail("--help", PYTHONPATH=path).stdout


@pytest.mark.parametrize(
    "body",
    [
        MINE,
        f"{GREET}; {MINE}",
        MINE.replace("devices", "plugins list"),
        "cli.command('devices', help='Mine.')(lambda: print('mine'))",
    ],
)
def test_a_plugin_cannot_replace_a_command(dovetail: Program, with_hooks: Callable[[str], str], body: str) -> None:
    path = with_hooks(body)
    done = dovetail("--help", PYTHONPATH=path)
    assert "plugin fake-commands/hooks/fake failed: it adds a command '" in done.stderr
    assert "', which is built in" in done.stderr
    assert "devices " in done.stdout
    assert "Mine." not in done.stdout
    assert "greet" not in done.stdout
    assert "mine" not in dovetail("devices", PYTHONPATH=path).stdout


def test_a_command_that_a_plugin_has_added_is_not_replaced(dovetail: Program, with_hooks: Callable[[str], str]) -> None:
    path = with_hooks(f"{GREET}; cli.add_command(click.Command('greet', help='Mine.'))")
    done = dovetail("--help", PYTHONPATH=path)
    assert "fake-commands/hooks/fake failed: it adds a command 'greet', which is there already" in done.stderr
    assert "greet" not in done.stdout


def test_an_unknown_command_says_where_commands_come_from(invoke: Invoke) -> None:
    assert "pip install 'dovetail[all]'" in invoke("greet", code=2).stderr


def test_an_unknown_command_names_the_packages_that_are_switched_off(dovetail: Program) -> None:
    known = dovetail("bench", "absent.onnx", DOVETAIL_PLUGINS="onnx,numpy,views", code=1).stderr
    assert known.startswith("Error: absent.onnx: the file cannot be read")
    refused = dovetail("bench", "absent.onnx", DOVETAIL_PLUGINS="-views,-tools", code=2).stderr
    assert "Unknown command 'bench'." in refused
    assert "left out: dovetail-tools, dovetail-views (switched off by DOVETAIL_PLUGINS)." in refused


def test_a_plugin_that_raises_leaves_the_rest(dovetail: Program, with_hooks: Callable[[str], str]) -> None:
    path = with_hooks("raise ValueError('boom')")
    done = dovetail("--help", PYTHONPATH=path)
    assert "devices" in done.stdout
    assert "boom" in done.stderr
    assert dovetail("devices", PYTHONPATH=path).stdout


def test_a_wrong_plugin_switch_is_a_message(dovetail: Program) -> None:
    for arguments, code in ((["plugins", "list"], 1), (["--help"], 0)):
        done = dovetail(*arguments, code=code, DOVETAIL_PLUGINS="nothing-like-this")
        assert "nothing-like-this" in done.stderr
        assert "Traceback" not in done.stderr
