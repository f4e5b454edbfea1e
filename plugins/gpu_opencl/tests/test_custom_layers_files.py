"""Custom-layer files: what is read, and that everything else is an error with file, line, and what is accepted."""

import random
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from dovetail.errors import DovetailError, FormatError, UsageError
from dovetail_gpu_opencl.custom_layers import registry
from dovetail_gpu_opencl.custom_layers.reader import read
from dovetail_gpu_opencl.custom_layers.sources import MemoryOrigin, origins
from dovetail_gpu_opencl.custom_layers.spec import DataArgument, Layer, TensorArgument

CL = "__kernel void twist(__global const float* x, __global float* y) { y[get_global_id(0)] = x[get_global_id(0)]; }\n"

GOOD = """<CustomLayer name="Twist" type="SimpleGPU" version="1">
  <Kernel entry="twist">
    <Source filename="twist.cl"/>
    <Define name="angle" type="float" param="angle" default="0.5"/>
  </Kernel>
  <Buffers>
    <Tensor arg-index="0" type="input" port-index="0" format="bfyx"/>
    <Tensor arg-index="1" type="output" port-index="0"/>
  </Buffers>
  <CompilerOptions options="-cl-mad-enable"/>
  <WorkSizes global="X, Y ,B*F" local="1,1,1" dim="input 0"/>
</CustomLayer>
"""


def layers(xml: str | bytes, sources: Mapping[str, str | bytes] | None = None) -> list[Layer]:
    return list(read(MemoryOrigin({"xml": xml, "sources": {"twist.cl": CL} if sources is None else sources, "name": "f.xml"})))


def test_every_part_of_a_layer_is_read() -> None:
    (layer,) = layers(GOOD)
    assert (layer.name, layer.entry, layer.options, layer.title) == (
        "Twist",
        "twist",
        "-cl-mad-enable",
        "custom layer Twist (f.xml)",
    )
    assert layer.source == f"// Custom Layer Kernel twist.cl\n{CL}"
    (define,) = layer.defines
    assert (define.place, define.name, define.param, define.type, define.default) == ("f.xml:4", "angle", "angle", "float", "0.5")
    assert layer.arguments == (TensorArgument("f.xml:7", False, 0, "BFYX"), TensorArgument("f.xml:8", True, 0, "BFYX"))
    work = layer.work
    assert work.global_size is not None
    assert work.global_size.evaluate({"B": 2, "F": 3, "Y": 5, "X": 7}) == (7, 5, 6)
    assert (work.input, work.place) == (0, "f.xml:11")


@pytest.mark.parametrize(("dim", "expected"), [("output", None), ("input", 0), ("input,2", 2), ("input 3", 3)])
def test_spellings_of_dim(dim: str, expected: int | None) -> None:
    assert layers(GOOD.replace("input 0", dim))[0].work.input == expected


@pytest.mark.parametrize("name", ["BFYX", "BYXF", "YXFB", "FYXB", "ANY"])
def test_formats_in_either_case(name: str) -> None:
    for spelled in (name, name.lower()):
        argument = layers(GOOD.replace("bfyx", spelled))[0].arguments[0]
        assert isinstance(argument, TensorArgument)
        assert argument.format == name


def test_several_layers_sources_options_and_data() -> None:
    second = (
        GOOD.replace("Twist", "my.domain::Turn")
        .replace('<Source filename="twist.cl"/>', '<Source filename="twist.cl"/><Source filename="more.cl"/>')
        .replace(
            '  <CompilerOptions options="-cl-mad-enable"/>',
            '<CompilerOptions options=" -DA=1 "/><CompilerOptions options="-DB"/>',
        )
        .replace("</Buffers>", '<Data name="w" arg-index="2"/></Buffers>')
    )
    for text in (GOOD + second, f'<?xml version="1.0"?>\n<!-- two --><Any>{GOOD}{second}</Any>'):
        first, other = layers(text, {"twist.cl": CL, "more.cl": "int more;"})
        assert (first.name, other.name) == ("Twist", "my.domain::Turn")
        assert other.source == f"// Custom Layer Kernel twist.cl\n{CL}// Custom Layer Kernel more.cl\nint more;\n"
        assert other.options == "-DA=1 -DB"
        assert isinstance(other.arguments[2], DataArgument)
        assert other.arguments[2].name == "w"


def test_defaults() -> None:
    text = re.sub(r' format="bfyx"|  <(Define|CompilerOptions|WorkSizes)[^>]*/>\n', "", GOOD)
    (layer,) = layers(text)
    assert (layer.defines, layer.options, layer.work.global_size, layer.work.local_size) == ((), "", None, None)
    assert isinstance(layer.arguments[0], TensorArgument)
    assert layer.arguments[0].format == "BFYX"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(encoding: str) -> None:
    declared = '<?xml version="1.0" encoding="latin-1"?>' if encoding == "latin-1" else ""
    (layer,) = layers((declared + GOOD.replace("Twist", "Dréh")).encode(encoding))
    assert layer.name == "Dréh"


# Each row: what is replaced in GOOD, by what, the line that the error names, and words that it holds.
MALFORMED = [
    ("SimpleGPU", "SimpleCPU", 1, "'type' is 'SimpleCPU'.*SimpleGPU"),
    ("SimpleGPU", "simplegpu", 1, "'type' is 'simplegpu'"),
    (' type="SimpleGPU"', "", 1, "<CustomLayer> has no attribute 'type'"),
    ('version="1"', 'version="2"', 1, "'version' is '2'.*accepted: 1"),
    (' version="1"', "", 1, "no attribute 'version'"),
    ('name="Twist"', 'name=""', 1, "'name' is ''.*operator type"),
    ('name="Twist"', 'name="a b"', 1, "'name' is 'a b'"),
    ('name="Twist" ', "", 1, "<CustomLayer> has no attribute 'name'"),
    ('name="Twist"', 'nmae="Twist"', 1, "attribute 'nmae'.*Did you mean 'name'"),
    ('name="Twist"', 'name="Twist" extra="1"', 1, "attribute 'extra'"),
    ("CustomLayer", "CustomLayr", 1, "<CustomLayr> with attributes.*CustomLayer"),
    ('<Kernel entry="twist">', "<Kernel>", 2, "<Kernel> has no attribute 'entry'"),
    ('entry="twist"', 'entry=""', 2, "'entry' is ''.*kernel function"),
    ('entry="twist"', 'entry="a-b"', 2, "'entry' is 'a-b'"),
    ("  <Buffers>", '  <Kernel entry="b"><Source filename="twist.cl"/></Kernel>\n  <Buffers>', 6, "a second <Kernel>"),
    ("  </Buffers>", "  </Buffers><Buffers><Tensor/></Buffers>", 9, "a second <Buffers>"),
    ("</CustomLayer>", "<WorkSizes/></CustomLayer>", 12, "a second <WorkSizes>"),
    ('<Source filename="twist.cl"/>', "", 2, "<Kernel> has no <Source>.*one or more"),
    ('filename="twist.cl"', "", 3, "<Source> has no attribute 'filename'"),
    ('filename="twist.cl"', 'filename=" "', 3, "'filename' is empty"),
    ("twist.cl", "other.cl", 3, "'other.cl' is not among 'sources'.*twist.cl"),
    ('<Source filename="twist.cl"/>', '<Source filename="twist.cl"><Define name="a"/></Source>', 3, "<Define> inside <Source>"),
    ("<Source", "<Sources", 3, "<Sources> inside <Kernel>.*Did you mean 'Source'"),
    ('name="angle"', "", 4, "<Define> has no attribute 'name'"),
    ('name="angle"', 'name=""', 4, "'name' is ''.*C identifier"),
    ('name="angle"', 'name="5x"', 4, "'name' is '5x'"),
    ('name="angle"', 'name="a&#10;#define b"', 4, "one line of text"),
    ('type="float"', 'type="double"', 4, "'type' is 'double'.*int, float, int\\[\\], float\\[\\]"),
    ('type="float"', 'type="float []"', 4, "'type' is 'float \\[\\]'"),
    ('type="float"', 'type="Float"', 4, "'type' is 'Float'"),
    ('param="angle"', 'param=""', 4, "'param' is empty"),
    ('default="0.5"', 'default="1&#10;2"', 4, "'default' is .*one line of text"),
    ('default="0.5"', 'default="1 \\"', 4, "'default'.*one line of text"),
    ("  </Kernel>", '<Define name="angle(x) x"/></Kernel>', 5, "a second Define 'angle'; the first is in line 4.*each name once"),
    ('default="0.5"', 'defualt="0.5"', 4, "'defualt'.*Did you mean 'default'"),
    (' port-index="0" format', " format", 7, "<Tensor> has no attribute 'port-index'"),
    ('arg-index="0"', "", 7, "<Tensor> has no attribute 'arg-index'"),
    ('type="input"', "", 7, "<Tensor> has no attribute 'type'"),
    ('type="input"', 'type="Input"', 7, "'type' is 'Input'.*input, output"),
    ('type="input"', 'type="internal"', 7, "'type' is 'internal'"),
    ('arg-index="0"', 'arg-index="-1"', 7, "'arg-index' is '-1'.*0 to"),
    ('arg-index="0"', 'arg-index="one"', 7, "'arg-index' is 'one'"),
    ('arg-index="0"', 'arg-index="1.0"', 7, "'arg-index' is '1.0'"),
    ('arg-index="0"', 'arg-index="99999999999999999999"', 7, "'arg-index' is '9999"),
    ('arg-index="0"', 'arg-index="1"', 8, "a second argument 1; the first is in line 7"),
    ('arg-index="1"', 'arg-index="2"', 6, "arguments are 0, 2: 1 is missing.*0 to 1"),
    ('port-index="0" format="bfyx"', 'port-index="-2" format="bfyx"', 7, "'port-index' is '-2'"),
    ("bfyx", "Bfyx", 7, "'format' is 'Bfyx'.*BFYX, BYXF, YXFB, FYXB, ANY"),
    ("bfyx", "NCHW", 7, "'format' is 'NCHW'"),
    ("bfyx", "", 7, "'format' is ''"),
    ("</Buffers>", '<Data arg-index="2"/></Buffers>', 9, "<Data> has no attribute 'name'"),
    ("</Buffers>", '<Data name="w"/></Buffers>', 9, "<Data> has no attribute 'arg-index'"),
    ("</Buffers>", '<Data name="" arg-index="2"/></Buffers>', 9, "'name' is empty"),
    ("</Buffers>", '<Data name="w" arg-index="1"/></Buffers>', 9, "a second argument 1"),
    ("</Buffers>", '<Tensor arg-index="2" type="output" port-index="0"/></Buffers>', 9, "output 0 is bound twice"),
    ("</Buffers>", '<Tensor arg-index="2" type="input" port-index="0" format="YXFB"/></Buffers>', 9, "bound as BFYX and as YXFB"),
    ('<Tensor arg-index="1" type="output" port-index="0"/>', "", 6, "no <Tensor> of type output"),
    (' options="-cl-mad-enable"', "", 10, "<CompilerOptions> has no attribute 'options'"),
    ("<CompilerOptions", "<CompileOptions", 10, "<CompileOptions> inside <CustomLayer>.*Did you mean 'CompilerOptions'"),
    ("X, Y ,B*F", "X,Y,B,F", 11, "has 4 sizes.*one to three"),
    ("X, Y ,B*F", "X,,1", 11, "global: formula '': it is empty"),
    ("X, Y ,B*F", "X,Y,", 11, "global: formula '': it is empty"),
    ("X, Y ,B*F", "", 11, "global: formula '': it is empty"),
    ("X, Y ,B*F", "X,Y,B F *", 11, "formula 'B F \\*'"),
    ("X, Y ,B*F", "X,Y,*BF", 11, "formula '\\*BF'"),
    ("X, Y ,B*F", "X,Y,()5", 11, "formula '\\(\\)5'"),
    ("X, Y ,B*F", "X,Y,2 3", 11, "formula '2 3'"),
    ("X, Y ,B*F", "X,Y,5X", 11, "formula '5X'"),
    ("X, Y ,B*F", "X,Y,(B", 11, "formula '\\(B'"),
    ("X, Y ,B*F", "X,Y,0x10", 11, "formula '0x10'"),
    ("X, Y ,B*F", "X,Y,W", 11, "'W' is not accepted"),
    ("X, Y ,B*F", "X,Y,1.5", 11, "formula '1.5'"),
    ("X, Y ,B*F", "X,Y,99999999999", 11, "99999999999 is not accepted"),
    ('local="1,1,1"', 'local="1,1"', 11, "another number of dimensions"),
    ('local="1,1,1"', 'local="1,,1"', 11, "local: formula ''"),
    ("input 0", "input,x", 11, "dim is 'input,x'.*output, input, or input,N"),
    ("input 0", "Input", 11, "dim is 'Input'"),
    ("input 0", "input,-1", 11, "dim is 'input,-1'"),
    ("input 0", "", 11, "dim is ''"),
    ("</CustomLayer>", "<Kernels/></CustomLayer>", 12, "<Kernels> inside <CustomLayer>"),
    ("</CustomLayer>", "hello</CustomLayer>", 12, "text 'hello'"),
    ("</CustomLayer>", "", 13, "mismatched tag; <CustomLayer> of line 1 is open"),
    ("</CustomLayer>", "</CustomLayer><Kernel/>", 12, "<Kernel> at the top"),
    ("</CustomLayer>", "</CustomLayer>&bomb;", 12, "not well-formed XML: undefined entity"),
    ('entry="twist"', 'entry="twist" entry="b"', 2, "duplicate attribute"),
    ('<CustomLayer name="Twist"', '<!DOCTYPE a [<!ENTITY b "c">]>\n<CustomLayer name="Twist"', 1, "document type"),
    ('<CustomLayer name="Twist"', '\n<!DOCTYPE a SYSTEM "file:///etc/passwd">\n<CustomLayer name="Twist"', 2, "document type"),
    ('<CustomLayer name="Twist"', '<!ENTITY b "c"><CustomLayer name="Twist"', 1, "document type or entity"),
    ("<Buffers>", "<Buffers>\x01", 6, "not well-formed"),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), MALFORMED, ids=[f"{o}->{n}"[:60] for o, n, *_ in MALFORMED])
def test_malformed(old: str, new: str, line: int, said: str) -> None:
    assert GOOD.count(old) in (1, 2)
    with pytest.raises(FormatError) as raised:
        layers(GOOD.replace(old, new))
    message = str(raised.value).replace("\n", " ")
    assert message.startswith(f"f.xml:{line}: "), message
    assert re.search(said, message), message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "the file has no custom layer"),
        ("<!-- nothing -->", 1, "the file has no custom layer"),
        ("<Layers/>", 1, "<Layers> at the top"),
        (f"<A>{GOOD}<B/></A>", 13, "<B> at the top"),
        (GOOD + GOOD, 13, "a second layer 'Twist'; the first is in line 1"),
        ("<a>" * 100_000, 1, "nested more than 8 deep"),
        ("just text", 1, "text 'just text'"),
        ("</roots>", 1, "not well-formed"),
    ],
)
def test_malformed_as_a_whole(text: str, line: int, said: str) -> None:
    with pytest.raises(FormatError, match=rf"f\.xml:{line}: .*{re.escape(said)}"):
        layers(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD.encode().replace(b"Twist", b"Tw\xff"), "f.xml:1: the content is not utf-8"),
        (b'<?xml version="1.0" encoding="klingon"?>' + GOOD.encode(), "encoding 'klingon' is not known"),
        (b'<?xml version="1.0" encoding="rot13"?>' + GOOD.encode(), "encoding 'rot13' is not known"),
    ],
)
def test_bytes_that_are_no_text(content: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        layers(content)


@pytest.mark.parametrize(("source", "said"), [(b"\xff\xfe", "twist.cl is not UTF-8"), ("a\0b", "twist.cl holds a NUL")])
def test_sources_that_are_no_text(source: str | bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        layers(GOOD, {"twist.cl": source})


def test_mutations_raise_nothing_but_our_own_errors() -> None:
    """A few hundred seeded changes of a good file: characters, pieces of the file itself, and words of the format."""
    rng = random.Random(4)
    words = [
        "<",
        ">",
        "/",
        '"',
        "&",
        "&#0;",
        "<!DOCTYPE x>",
        "]]>",
        "<![CDATA[",
        "\x00",
        "\ud800",
        "-1",
        "ANY",
        "<?xml?>",
        "é",
        "\\",
    ]
    words += re.findall(r"<[^>]*>|\S+", GOOD)
    read_whole = refused = 0
    for _ in range(600):
        text = GOOD
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text))
            end = min(len(text), start + rng.choice((0, 1, 1, 5, 40)))
            text = text[:start] + rng.choice([rng.choice(words), "", text[start:end] * 2]) + text[end:]
        try:
            read_whole += bool(layers(text))
        except DovetailError:
            refused += 1
    assert read_whole
    assert refused


# --- files, packages, memory -----------------------------------------------------------------------------------------


def test_sources_are_relative_to_the_xml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder"
    (folder / "cl").mkdir(parents=True)
    (folder / "cl" / "twist.cl").write_text(CL)
    (folder / "l.xml").write_text(GOOD.replace("twist.cl", "cl/twist.cl"))
    monkeypatch.chdir(folder)
    for given in (str(folder / "l.xml"), folder / "l.xml", "l.xml", [str(folder / "l.xml")]):
        assert len(registry.load(given)) == 1
    (folder / "l.xml").write_text(GOOD.replace("twist.cl", str(folder / "cl" / "twist.cl")))
    monkeypatch.chdir(tmp_path)
    assert len(registry.load(folder / "l.xml")) == 1


def test_a_missing_source_says_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "l.xml").write_text(GOOD)
    with pytest.raises(FormatError) as raised:
        registry.load(tmp_path / "l.xml")
    assert str(raised.value).startswith(f"{tmp_path / 'l.xml'}:3: the source file 'twist.cl'")
    assert str(tmp_path / "twist.cl") in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "no.xml", "cannot be read"), (tmp_path, "a folder")):
        with pytest.raises(FormatError, match=said) as raised:
            registry.load(path)
        assert str(path) in str(raised.value)


def test_from_a_resource_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "twist_package"
    (package / "cl").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cl" / "twist.cl").write_text(CL)
    (package / "cl" / "l.xml").write_text(GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    layer = registry.load("twist_package:cl/l.xml").find("my", "Twist")
    assert layer is not None
    assert (layer.place, layer.title) == ("twist_package:cl/l.xml:1", "custom layer Twist (l.xml)")
    (package / "cl" / "twist.cl").unlink()
    with pytest.raises(FormatError, match=r"twist_package:cl/l.xml:3: .*twist\.cl"):
        registry.load("twist_package:cl/l.xml")
    with pytest.raises(FormatError, match=r"other\.xml"):
        registry.load("twist_package:other.xml")
    for name in ("no_such_package", "twist_package.no_such_part", "json.decoder"):
        with pytest.raises(UsageError, match=f"the package '{name}' is not installed"):
            registry.load(f"{name}:l.xml")


def test_from_a_package_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "application.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in (("__init__.py", ""), ("cl/twist.cl", CL), ("cl/l.xml", GOOD)):
            file.writestr(f"zipped_package/{name}", text)
    monkeypatch.syspath_prepend(archive)
    assert registry.load("zipped_package:cl/l.xml").find("my", "Twist") is not None
    with pytest.raises(FormatError, match=r"zipped_package:other.xml: .*application\.pyz has no such file"):
        registry.load("zipped_package:other.xml")


def test_naming_a_package_does_not_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dovetail.yaml` may name such a file, and must not be able to run code by it."""
    inner = tmp_path / "hostile_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
        (folder / "twist.cl").write_text(CL)
        (folder / "l.xml").write_text(GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    assert len(registry.load(["hostile_package:l.xml", "hostile_package.inner:l.xml", "hostile_package:inner/l.xml"])) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "CONFIG_FILE is 5; accepted: a path"),
        ("", "CONFIG_FILE is ''"),
        ([None], "CONFIG_FILE is None"),
        ({"sources": {}}, "a mapping without XML"),
        ({"xml": GOOD, "sorces": {}}, "has a key 'sorces'"),
        ({"xml": GOOD, "sources": 3}, "a mapping without XML"),
    ],
)
def test_values_that_cannot_be_meant(given: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        origins(given)


def test_who_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The global file, then those of the environment, then the user's in order: the last one that has the name."""
    package = tmp_path / "global_package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "GLOBAL", "global_package:g.xml")

    def write(name: str, *operators: str) -> Path:
        (package / "twist.cl").write_text(CL)
        (package / name).write_text("".join(GOOD.replace("Twist", operator) for operator in operators))
        return package / name

    write("g.xml", "A", "B", "C", "D")
    monkeypatch.setenv(registry.VARIABLE, str(write("e.xml", "B", "C", "D")))
    found = registry.load([write("u.xml", "C", "ai.onnx::D"), write("v.xml", "D")])
    files = {name: layer.file for name in "ABCD" if (layer := found.find("", name)) is not None}
    assert files == {"A": "g.xml", "B": "e.xml", "C": "u.xml", "D": "v.xml"}
    by_domain = registry.load(package / "u.xml").find("", "D")
    assert by_domain is not None
    assert by_domain.name == "ai.onnx::D"
    elsewhere = registry.load(package / "u.xml").find("other", "D")
    assert elsewhere is not None
    assert elsewhere.file == "e.xml"
    assert found.find("", "E") is None


def test_a_malformed_global_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "no.xml"))
    with pytest.raises(FormatError, match=r"no\.xml"):
        registry.load()
    monkeypatch.delenv(registry.VARIABLE)
    assert len(registry.load()) == 0
