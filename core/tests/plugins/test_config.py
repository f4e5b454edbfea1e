"""dovetail.yaml: where it is found, what it may say, and which of argument, environment and file wins."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli import program
from dovetail.config import FILE_NAME, Config
from dovetail.errors import DeviceNotFound, PluginNotFound, UnknownOption, UsageError
from dovetail.plugins import PluginManager
from dovetail_ops_onnx.relu import Relu


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, whose file is trusted."""
    monkeypatch.setenv("DOVETAIL_TRUST_CONFIG", "1")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def write(folder: Path, content: str | bytes, name: str = FILE_NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


WHOLE = """\
# a comment
plugins: [-slow, -zip-reader]
prefer:
  tim.vx::HSwish: fast-pack   # a pin
  Conv: dovetail
devices:
  opencl:
    QUEUE: IN_ORDER
    FUSION: no
  ACME:
    LEVELS: [1, 2.5, x]
"""


def test_everything_that_a_file_may_say(folder: Path) -> None:
    write(folder, WHOLE)
    config = Config.load()
    assert config.values == {
        "plugins": ("-slow", "-zip-reader"),
        "prefer": ("tim.vx::HSwish=fast-pack", "Conv=dovetail"),
        "devices": {"OPENCL": {"QUEUE": "IN_ORDER", "FUSION": False}, "ACME": {"LEVELS": (1, 2.5, "x")}},
    }
    assert config.places["plugins", "-slow"] == "dovetail.yaml:2"
    assert config.places["prefer", "Conv=dovetail"] == "dovetail.yaml:5"
    assert config.places["devices", "ACME"] == "dovetail.yaml:10"
    assert config.places["devices", "OPENCL", "FUSION"] == "dovetail.yaml:9"
    with pytest.raises(TypeError):
        config.values["devices"]["ACME"]["LEVELS"] = ()


@pytest.mark.parametrize(
    "content", ["", "# nothing\n", "---\n", "{}", "plugins:\nprefer:\ndevices:\n", "devices: {NPU: }", "\ufeff{}"]
)
def test_a_file_may_say_nothing(folder: Path, content: str) -> None:
    write(folder, content)
    config = Config.load()
    assert not any(config.values.values())
    assert config.devices == {}


def test_a_mapping_says_the_same_as_a_file(folder: Path) -> None:
    write(folder, WHOLE)
    mapping = {
        "plugins": ["-slow", "-zip-reader"],
        "prefer": {"tim.vx::HSwish": "fast-pack", "Conv": "dovetail"},
        "devices": {"opencl": {"QUEUE": "IN_ORDER", "FUSION": False}, "ACME": {"LEVELS": (1, 2.5, "x")}},
    }
    assert Config.load(mapping).values == Config.load().values


# --- where it is found ------------------------------------------------------------------------------------------------


def test_the_working_folder_goes_before_the_users_and_both_after_what_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Config.load().values == {}
    write(tmp_path / "user" / "dovetail", "plugins: [-user]")
    assert Config.load().values == {"plugins": ("-user",)}
    assert Config.load().places["plugins",] == f"{tmp_path / 'user' / 'dovetail' / FILE_NAME}:1"
    write(folder, "plugins: [-folder]")
    assert Config.load().values == {"plugins": ("-folder",)}
    monkeypatch.setenv("DOVETAIL_CONFIG", str(write(tmp_path, "plugins: [-environment]", "e.yaml")))
    assert Config.load().values == {"plugins": ("-environment",)}
    assert Config.load(write(tmp_path, "plugins: [-argument]", "a.yaml")).values == {"plugins": ("-argument",)}
    assert Config.load(False).values == {}
    monkeypatch.setenv("DOVETAIL_CONFIG", "")
    assert Config.load().values == {"plugins": ("-folder",)}


def test_the_users_folder_is_the_platforms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    for variable in ("HOME", "APPDATA", "USERPROFILE"):
        monkeypatch.setenv(variable, str(folder))
    write(platformdirs.user_config_path("dovetail", appauthor=False, roaming=True), "plugins: [-platform]")
    assert Config.load().values == {"plugins": ("-platform",)}


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_the_users_folder_on_linux(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "me"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "mine"))
    write(folder / "mine" / "dovetail", "plugins: [-mine]")
    write(folder / "me" / ".config" / "dovetail", "plugins: [-home]")
    assert Config.load().values == {"plugins": ("-mine",)}
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unset)
        assert Config.load().values == {"plugins": ("-home",)}


def test_without_a_home_there_is_no_file_of_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without an entry in the password database
    write(folder / "~" / ".config" / "dovetail", "plugins: [-planted]")
    assert Config.load() == Config()


@pytest.mark.parametrize("make", [lambda f: None, lambda f: f.mkdir(), os.mkfifo, lambda f: f.symlink_to("nowhere")])
def test_a_path_that_is_no_file_is_an_error_that_says_who_named_it(
    folder: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "c.yaml"
    make(path)
    with pytest.raises(UsageError, match=r"c.yaml' \(named by config=\)"):
        Config.load(path)
    monkeypatch.setenv("DOVETAIL_CONFIG", str(path))
    with pytest.raises(UsageError, match=r"c.yaml' \(named by DOVETAIL_CONFIG\)"):
        PluginManager()


def test_a_file_of_the_right_name_that_cannot_be_read_is_not_passed_over(folder: Path) -> None:
    (folder / FILE_NAME).mkdir()
    with pytest.raises(UsageError, match=r"dovetail.yaml' cannot be read: it is not a file"):
        Config.load()


@pytest.mark.parametrize("wrong", [7, True, 1.5, ["a"]])
def test_config_of_a_wrong_type(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"config= is .*; accepted: a path, a mapping, False"):
        Config.load(wrong)


def test_yaml_is_imported_only_for_a_file(site: Any, tmp_path: Path) -> None:
    code = "import os, sys; os.chdir({!r})\nfrom dovetail.plugins import PluginManager\n"
    code += "PluginManager(); print('yaml' in sys.modules)"
    assert site.run(code.format(str(tmp_path))) == "False\n"
    write(tmp_path, "{}")
    assert site.run(code.format(str(tmp_path))) == "True\n"


def test_text_for_devices_counts_only_in_a_file_that_somebody_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text could name a library to load. Numbers, true and false cannot."""
    content = "plugins: [-a]\ndevices:\n  ACME: {{FUSION: no, LEVELS: [1, 2.5],\n    {}}}\n"
    harmless = {"FUSION": False, "LEVELS": (1, 2.5)}
    for more, whole in (("LIBRARY: evil", {"LIBRARY": "evil"}), ("FILES: [1, [x]]", {"FILES": (1, ("x",))})):
        monkeypatch.setenv("DOVETAIL_TRUST_CONFIG", "1")
        file = write(folder, content.format(more))
        assert Config.load().devices == {"ACME": harmless | whole}
        monkeypatch.delenv("DOVETAIL_TRUST_CONFIG")
        assert Config.load(FILE_NAME).devices == {"ACME": harmless | whole}
        monkeypatch.setenv("DOVETAIL_CONFIG", FILE_NAME)
        assert Config.load().devices == {"ACME": harmless | whole}
        monkeypatch.delenv("DOVETAIL_CONFIG")
        with pytest.raises(UsageError, match=r"^dovetail.yaml:4: devices > ACME > .* is text, which could name a file") as caught:
            Config.load()
        assert "set DOVETAIL_TRUST_CONFIG=1" in caught.value.hint
        file.unlink()
        user = write(tmp_path / "user" / "dovetail", content.format(more))
        assert Config.load().devices == {"ACME": harmless | whole}, "the user's own folder is trusted"
        user.unlink()
    write(folder, content.format(""))
    assert Config.load().values == {"plugins": ("-a",), "devices": {"ACME": harmless}}


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str | bytes, int, str, str]] = {
    "unknown key": ("\nplugin: all", 2, "unknown key 'plugin'", "Did you mean 'plugins'?"),
    "not a mapping": ("- a\n- b", 1, "the configuration is a list; accepted: a mapping", ""),
    "just text": ("plugins", 1, "the configuration is text", ""),
    "number as key": ("devices: {}\n1: 2", 2, "a key is a number; accepted: text", "quotes"),
    "list as key": ("? [a]\n: 2", 1, "a key is a list; accepted: text", "quotes"),
    "plugins a mapping": ("plugins:\n  a: b", 2, "plugins is a mapping; accepted: a list, text, nothing", ""),
    "plugins a boolean": ("plugins: no", 1, "plugins is true or false; accepted: a list, text", "quotes"),
    "a number in plugins": ("plugins:\n- a\n- 3", 3, "plugins > item 2 is a number; accepted: text", "quotes"),
    "a list in prefer": ("prefer:\n- a\n- [b]", 3, "prefer > item 2 is a list; accepted: text", ""),
    "prefer a number": ("prefer: 1", 1, "prefer is a number; accepted: a list, text, nothing, a mapping", ""),
    "a pin to a list": ("prefer:\n  Conv: [a]", 2, "prefer > Conv is a list; accepted: text", ""),
    "devices a list": ("devices: [ACME]", 1, "devices is a list; accepted: a mapping", ""),
    "devices false": ("devices: no", 1, "devices is true or false; accepted: a mapping", ""),
    "properties a text": ("devices:\n  ACME: fast", 2, "devices > ACME is text; accepted: a mapping", ""),
    "one device": ("devices:\n  ACME.1: {A: 1}", 2, "'ACME.1' is one device", "the type of devices: ACME"),
    "device twice": ("devices:\n  acme: {A: 1}\n  ACME: {B: 1}", 3, "'ACME' is given twice", "dovetail.yaml:2"),
    "property a mapping": ("devices:\n  ACME:\n    A: {b: 1}", 3, "A is a mapping; accepted: text, a number, true or false", ""),
    "property null": ("devices:\n  ACME:\n    A:", 3, "devices > ACME > A is nothing; accepted: text", ""),
    "property a date": ("devices:\n  ACME:\n    A: 2026-01-02", 3, "A is of type 'timestamp'; accepted: text", "quotes"),
    "base 60": ("devices:\n  ACME:\n    A: 12:30", 3, "'12:30' is not a value: a number to base 60", "quotes"),
    "huge number": ("devices:\n  ACME:\n    A: " + "9" * 9000, 3, "is not a value", ""),
    "key twice": ("plugins: a\nprefer: b\nplugins: c", 3, "'plugins' is given twice", "dovetail.yaml:1"),
    "property twice": ("devices:\n  ACME:\n    A: 1\n    A: 2", 4, "'A' is given twice", "dovetail.yaml:3"),
    "tab": ("devices:\n\tACME:\n", 2, "not YAML: found character '\\t'", ""),
    "unclosed": ("plugins: [a, b\n", 2, "not YAML", ""),
    "bad indentation": ("plugins: a\n  prefer: b", 2, "not YAML", ""),
    "two documents": ("plugins: a\n---\nplugins: b", 2, "not YAML: but found another document", ""),
    "control character": ("plugins: a\nprefer: \x07", 2, "not YAML", ""),
    "not UTF-8": (b"plugins: a\n# \xe9\n", 2, "not YAML: unacceptable character", "UTF-8"),
    "UTF-16": ("plugins: a".encode("utf-16"), 1, "not YAML: unacceptable character", "UTF-8"),
    "alias": ("plugins: &a [x]\nprefer: *a", 1, "an alias (*) is not accepted", "write the value out"),
    "bomb": ("devices: {A: {a: &a [1, 1], b: &b [*a, *a],\n  c: [*b, *b]}}", 1, "an alias (*) is not accepted", ""),
    "merge key": ("devices:\n  <<: {A: 1}", 2, "a key is of type 'merge'; accepted: text", ""),
    "python object": ("plugins: !!python/object/apply:os.system ['exit 3']", 1, "plugins is of type 'python/object", ""),
    "own tag": ("plugins: !mine x", 1, "plugins is of type '!mine'; accepted: a list, text", ""),
    "a set": ("plugins: !!set {a}", 1, "plugins is of type 'set'", ""),
    "a key that is an alias": ("devices: {A: {&a x: 1, *a : 2}}", 1, "an alias (*) is not accepted", ""),
    "deep list": ("devices:\n  A:\n    B: " + "[" * 7 + "]" * 7, 3, "nested more than 8 deep", ""),
    "deep": ("plugins: " + "[" * 20_000, 1, "nested more than 8 deep", ""),
    "large": ("#" * 70_000, 0, "it has more than 32,768 bytes", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_with_file_and_line(folder: Path, case: str) -> None:
    content, line, message, hint = REFUSED[case]
    write(folder, content)
    with pytest.raises(UsageError) as caught:
        Config.load()
    place = f"dovetail.yaml:{line}: " if line else "the configuration 'dovetail.yaml' cannot be read: "
    assert caught.value.message.startswith(place), caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_largest_file_is_read_or_refused_without_hanging(folder: Path) -> None:
    write(folder, "plugins: [" + "a," * 16_000 + "]")
    assert len(Config.load().values["plugins"]) == 16_000


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"plugin": "all"}, "config=: unknown key 'plugin'"),
        ({1: 2}, "config=: a key is a number"),
        ({"devices": {"ACME": {"A": object}}}, "config=: devices > ACME > A is of type 'type'; accepted: text"),
        ({"prefer": {"Conv": 1}}, "config=: prefer > Conv is a number; accepted: text"),
    ],
)
def test_a_mapping_is_checked_too(mapping: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Config.load(mapping)
    assert caught.value.message.startswith(message)


def test_a_mapping_that_contains_itself() -> None:
    endless: dict[str, Any] = {}
    endless["devices"] = endless
    with pytest.raises(UsageError, match="devices > DEVICES > devices is a mapping"):
        Config.load(endless)
    levels: list[Any] = []
    levels.append(levels)
    with pytest.raises(UsageError, match="nested more than 8 deep"):
        Config.load({"devices": {"ACME": {"LEVELS": levels}}})


# --- what it does -----------------------------------------------------------------------------------------------------


def test_names_that_are_not_installed_are_errors_with_the_line(site: Any, device: Any, folder: Path) -> None:
    device("acme")
    write(folder, "plugins:\n- -acme\n- -zip\n")
    with pytest.raises(PluginNotFound, match=r"'zip' \(named by 'plugins' at dovetail.yaml:3\)"):
        PluginManager()
    write(folder, "prefer:\n  Conv: fast\n")
    with pytest.raises(PluginNotFound, match=r"'fast' \(named by 'prefer' at dovetail.yaml:2\)"):
        PluginManager()
    write(folder, "devices:\n  ACNE: {A: 1}\n")
    with pytest.raises(DeviceNotFound, match=r"dovetail.yaml:2: no installed plugin provides the device 'ACNE'") as caught:
        PluginManager()
    assert caught.value.hint == "Did you mean 'ACME'?"


@pytest.mark.parametrize("content", ["plugins:\n- a\n- -b", "plugins: -a,b"])
def test_a_list_with_and_without_minus_names_the_line(site: Any, folder: Path, content: str) -> None:
    write(folder, content)
    with pytest.raises(UsageError, match=r"^'plugins' at dovetail\.yaml:1 is '.*', which is neither a list nor") as caught:
        PluginManager()
    assert "only these" in caught.value.hint


def test_a_blocked_plugin_names_the_line(site: Any, device: Any, folder: Path) -> None:
    device("acme")
    write(folder, "\nplugins: -acme")
    record = PluginManager().record("acme")
    assert (record.state, record.reason) == ("blocked", "switched off by 'plugins' at dovetail.yaml:2")


def test_argument_over_environment_over_file(site: Any, pack: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three"):
        site.plugin("overrides", "acme", pack("acme", "Twist"), name=name)
    write(folder, "prefer: [three]")

    def winner(**arguments: Any) -> str:
        manager = PluginManager(**arguments)
        return manager.provider(manager.operator("acme", "Twist", 1))

    assert winner() == "three 1.0"
    monkeypatch.setenv("DOVETAIL_PREFER", "two")
    assert winner() == "two 1.0"
    assert winner(prefer=["one"]) == "one 1.0"
    assert winner(prefer="one") == "one 1.0"
    assert winner(prefer={"acme::Twist": "one"}) == "one 1.0"


def compiled_options(core: dovetail.Core, device: str = "ACME", properties: Any = None) -> Any:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", [2]))])
    compiled = core.compile_model(model, device, properties)
    assert compiled(np.array([-1, 1], np.float32))[0].tolist() == [0, 1]
    return compiled


def test_device_properties_are_applied(toy_core: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Config -> core; `compile_model` comes before it, and properties of the core itself are taken out."""
    core, opened = toy_core(ACME=lambda node: False)
    monkeypatch.setattr(core._session, "_properties", {"ACME": {"SPEED": 1, "COLOUR": "red", "FUSION": False}})
    compiled_options(core)
    seen: list[Any] = []
    honest = opened[0].compile
    monkeypatch.setattr(opened[0], "compile", lambda graph, options: seen.append(dict(options)) or honest(graph, options))
    compiled_options(core, properties={"SPEED": 2})
    assert seen == [{"SPEED": 2, "COLOUR": "red"}]


def test_a_property_that_the_device_refuses_names_the_line(site: Any, device: Any, folder: Path) -> None:
    device(
        "acme",
        more="""
        from dovetail.errors import UnknownOption
        def configured(self, options):
            for name in options:
                if name != "SPEED":
                    raise UnknownOption(f"ACME has no option {name!r}", hint="Known: SPEED.")
            return self
        Fake.configured = configured
    """.replace("\n        ", "\n"),
    )
    write(folder, "devices:\n  acme:\n    SPEED: 3\n    COLOUR: 7\n")
    core = dovetail.Core()
    with pytest.raises(UnknownOption, match=r"^dovetail\.yaml:4: ACME has no option 'COLOUR'") as caught:
        compiled_options(core)
    assert caught.value.hint == "Known: SPEED."
    with pytest.raises(UnknownOption, match=r"^ACME has no option 'COLOUR'"):
        compiled_options(dovetail.Core(config=False), properties={"COLOUR": 7})


def test_pins_of_operators_that_a_manifest_does_not_list_name_the_line(site: Any, pack: Any, folder: Path) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), name="acme-ops")
    write(folder, "prefer:\n  acme::Twist: acme-ops\n  acme::Twits: acme-ops\n")
    PluginManager()  # without a manifest nothing is known before an import
    package = site.folder / "acme_ops"
    package.mkdir()
    (site.folder / "acme_ops.py").rename(package / "__init__.py")
    (package / "dovetail-manifest.json").write_text('{"format": 1, "plugins": {"ops/acme": ["acme::Twist-1"]}}')
    with pytest.raises(UsageError, match=r"'prefer' at dovetail\.yaml:3 pins acme::Twits to 'acme-ops', which does") as caught:
        PluginManager()
    assert caught.value.hint == "Did you mean 'acme::Twist'?"


def test_the_core_reads_the_file(site: Any, device: Any, folder: Path) -> None:
    device("acme", opens="raise DeviceError(repr(options))")
    write(folder, "devices:\n  acme:\n    SPEED: 3\n    FUSION: 7\n")
    with pytest.raises(UsageError, match=r"dovetail\.yaml:4: property FUSION is 7; accepted: True or False"):
        dovetail.Core()
    assert dovetail.Core(config={"devices": {"ACME": {"SPEED": 4}}})._session._properties == {"ACME": {"SPEED": 4}}
    assert dovetail.Core(config=False)._session._properties == {}


def test_settings_travel_with_a_pickled_model(toy_core: Any) -> None:
    core, _ = toy_core(ACME=lambda node: False)
    core._settings["config"] = {"plugins": "all"}
    compiled = compiled_options(core)
    assert pickle.loads(pickle.dumps(compiled)).recipe.settings["config"] == {"plugins": "all"}


# --- the program ------------------------------------------------------------------------------------------------------


def test_the_program_takes_the_option(site: Any, device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device("acme")
    monkeypatch.setenv("DOVETAIL_CONFIG", str(write(tmp_path, "plugins: all", "env.yaml")))
    file = write(tmp_path, "plugins: -acme", "c.yaml")
    shown = CliRunner().invoke(program, ["--config", str(file), "plugins", "list"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "blocked" in shown.stdout
    assert os.environ["DOVETAIL_CONFIG"].endswith("env.yaml"), "the environment is as it was"
    assert "blocked" not in CliRunner().invoke(program, ["plugins", "list"], catch_exceptions=False).stdout


def test_the_program_shows_an_error_of_the_file_as_a_message(site: Any, folder: Path) -> None:
    write(folder, "plugin: all")
    shown = CliRunner().invoke(program, ["plugins", "list"])
    assert shown.exit_code == 1
    assert shown.stderr == "Error: dovetail.yaml:1: unknown key 'plugin'\n  Did you mean 'plugins'?\n"
    assert CliRunner().invoke(program, ["--config", "nowhere.yaml", "plugins", "list"]).exit_code == 2
