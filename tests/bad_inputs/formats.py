"""The formats whose files `run.py` changes: how a file is changed, read and run, and what another reader makes of it."""

import functools
import importlib.util
import json
import math
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, defs, helper

import dovetail

HERE = Path(__file__).resolve().parent
PLUGINS = HERE.parents[1] / "plugins"
Rng = np.random.Generator
Parts = tuple[bytes, ...]
"""The contents of a file and of those that belong to it, in the order of `Format.suffixes`."""


@functools.cache
def module(path: Path) -> Any:
    """A file of tests as a module; their folders are not packages."""
    name = f"bad_inputs_{path.parents[1].name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded  # dataclasses look their module up
    spec.loader.exec_module(loaded)
    return loaded


LARGEST = 1 << 24
"""Elements of an input."""

MEMORY_LIMIT = 1 << 26
"""Bytes: elements that one node computes within `run.PATIENCE`."""


class NotRun(Exception):
    """The inputs that the model declares are too large to be made."""


class Format(ABC):
    """One format of files."""

    suffixes: tuple[str, ...]
    time_limit = 1.0
    """Seconds that a run may take: a loop whose trip count was changed may be endless."""
    NotRun = NotRun
    """Raised by `run`: the model compiles, and its inputs are too large to be made."""

    @functools.cached_property
    @abstractmethod
    def seeds(self) -> Sequence[Parts]:
        """Good files."""

    @abstractmethod
    def changed(self, parts: Parts, rng: Rng) -> Parts:
        """A file with one change."""

    @abstractmethod
    def run(self, core: dovetail.Core, parts: Parts) -> tuple[Mapping[str, Any], list[Any]]:
        """Read the file and run the model: inputs and outputs in their order. Raises DovetailError for what is refused."""

    def wanted(self, parts: Parts, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs by another reader, None where there is none; raises for what it does not take."""
        return None

    def mutated(self, index: int, seed: int) -> Parts:
        """The file of this number: one of the seeds, changed once, twice or thrice."""
        rng = np.random.default_rng([seed, index])
        parts = self.seeds[index % len(self.seeds)]
        for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
            parts = self.changed(parts, rng) if all(len(part) > 1 for part in parts[:1]) else parts
        return parts


def run_model(core: dovetail.Core, model: Any, seconds: float) -> tuple[Mapping[str, Any], list[Any]]:
    """The inputs and outputs of a model on NUMPY; open dimensions are 3, and integers are 1. Raises `NotRun`."""
    limits = {"TIME_LIMIT": seconds, "MEMORY_LIMIT": MEMORY_LIMIT}
    with core.compile_model(model, "NUMPY", limits) as compiled:
        rng = np.random.default_rng(0)
        feeds = {}
        for name, value in compiled.inputs.items():
            shape = [d if isinstance(d, int) else 3 for d in ((3,) if value.shape is None else value.shape)]
            if math.prod(shape) > LARGEST:
                raise NotRun
            feeds[name] = (rng.random(shape) if value.dtype.is_float else np.ones(shape)).astype(value.dtype.numpy)
        return feeds, [np.asarray(one) for one in compiled(feeds).values()]


def by_onnxruntime(content: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of an ONNX model."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options)
    return list(session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()}))


class Onnx(Format):
    """Bytes of .onnx files flipped, overwritten, copied and cut, and their nodes, values and types changed; onnxruntime reads
    them, too.
    """

    suffixes = (".onnx",)

    @functools.cached_property
    def seeds(self) -> Sequence[Parts]:
        kinds, build = module(HERE / "test_mutations.py"), module(HERE / "conftest.py")._build
        return [(make(build).SerializeToString(),) for make in (kinds._conv, kinds._everything, kinds._old)]

    def changed(self, parts: Parts, rng: Rng) -> Parts:
        kinds = module(HERE / "test_mutations.py")
        if rng.integers(4):
            return (applied([changed_model], parts[0], rng),)
        return (applied([kinds._flip, kinds._overwrite, kinds._splice, kinds._cut], parts[0], rng),)

    def run(self, core: dovetail.Core, parts: Parts) -> tuple[Mapping[str, Any], list[Any]]:
        return run_model(core, core.read_model(parts[0], format="onnx"), self.time_limit)

    def wanted(self, parts: Parts, feeds: Mapping[str, Any]) -> list[Any]:
        return by_onnxruntime(parts[0], feeds)


NUMBERS = (0, 1, 2, 3, 5, 7, -1, -2, 64, 2**20, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63))
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
OPERATORS = sorted({schema.name for schema in defs.get_all_schemas() if not schema.domain} - RANDOM)


def changed_model(content: bytes, rng: Rng) -> bytes:
    """An ONNX model with one node, edge, attribute, dimension, type or constant changed; bytes that are none as they are."""
    try:
        model = ModelProto.FromString(content)
    except DecodeError:
        return content
    nodes = list(model.graph.node)
    names = [name for node in nodes for name in (*node.input, *node.output)]
    node = nodes[rng.integers(len(nodes))]
    kind = int(rng.integers(7))
    if kind == 0:
        node.op_type = nodes[rng.integers(len(nodes))].op_type if rng.integers(2) else str(rng.choice(OPERATORS))
    elif kind == 1:
        edges = node.input if rng.integers(3) else node.output
        edges[rng.integers(len(edges))] = str(rng.choice(["", *names]))
    elif kind == 2:
        (node.input if rng.integers(3) else node.output).append(str(rng.choice(names)))
    elif kind == 3:
        _change_attribute(node.attribute[rng.integers(len(node.attribute))], rng)
    elif kind == 4:
        _change_tensor(model.graph.initializer[rng.integers(len(model.graph.initializer))], rng)
    else:
        _change_type([*model.graph.input, *model.graph.output][rng.integers(2)].type.tensor_type, rng)
    return bytes(model.SerializeToString())


def _number(rng: Rng) -> int:
    return NUMBERS[rng.integers(len(NUMBERS))]


def _change_attribute(attribute: Any, rng: Rng) -> None:
    attribute.i = _number(rng)
    attribute.f = float(rng.choice([0, -1, 1e38, np.nan, np.inf, 0.5]))
    if attribute.ints and rng.integers(3):
        attribute.ints[rng.integers(len(attribute.ints))] = _number(rng)
    elif rng.integers(2):
        attribute.ints.append(_number(rng))
    if not rng.integers(4):
        attribute.name = str(rng.choice(["axis", "axes", "pads", "group", "to", "perm", "alpha", "strides", "dilations"]))


def _change_tensor(tensor: Any, rng: Rng) -> None:
    """Values of integers are changed where there are any: they are shapes and axes."""
    if tensor.data_type == TensorProto.INT64 and tensor.raw_data and rng.integers(4):
        values = np.frombuffer(tensor.raw_data, np.int64).copy()
        values[rng.integers(values.size)] = _number(rng)
        tensor.raw_data = values.tobytes()
    elif tensor.dims and rng.integers(2):
        tensor.dims[rng.integers(len(tensor.dims))] = _number(rng)
    else:
        tensor.data_type = int(rng.integers(1, 25))


def _change_type(value: Any, rng: Rng) -> None:
    if value.shape.dim and rng.integers(3):
        value.shape.dim[rng.integers(len(value.shape.dim))].dim_value = _number(rng)
    elif rng.integers(2):
        value.shape.dim.add().dim_value = _number(rng)
    else:
        value.elem_type = int(rng.integers(1, 25))


UNLIKE_OPENVINO = ("NonMaxSuppression", "DetectionOutput", "RegionYolo", "EmbeddingBagOffsetsSum")
"""Types of layers whose results are not compared: openvino 2026.4 leaves outputs of the first uninitialized and suppresses boxes
apart at a threshold of 0, keeps boxes of negative size, takes do_softmax as false where it is missing, and reads beyond the
indices where offsets do not increase."""


def _ends_early(node: Any) -> bool:
    """Whether it is a Loop whose number of iterations, or condition, is a constant 0, or a number that it never comes to."""
    if node.get_type_name() != "Loop":
        return False
    given = [node.input_value(index).get_node() for index in (0, 1)]
    return any(one.get_type_name() == "Constant" and not 0 < one.data.max() < 1000 for one in given)


def _shrinks_masked(node: Any) -> bool:
    """Whether it is a StridedSlice that shrinks an axis whose beginning it masks, or that also adds an axis."""
    if node.get_type_name() != "StridedSlice":
        return False
    begins, adds, shrinks = (node.get_attributes()[f"{name}_mask"] for name in ("begin", "new_axis", "shrink_axis"))
    return (any(adds) and any(shrinks)) or any(b and s for b, s in zip(begins, shrinks, strict=False))


def _mixes_channels(node: Any) -> bool:
    """Whether it is an Interpolate as Pillow's along another axis than the last two."""
    if node.get_type_name() != "Interpolate" or "pillow" not in str(node.get_attributes()["mode"]):
        return False
    axes = node.input_value(2).get_node() if node.get_input_size() > 2 else None
    rank = node.get_input_partial_shape(0).rank.get_length()
    return axes is None or axes.get_type_name() != "Constant" or any(axis % rank < rank - 2 for axis in axes.data.tolist())


class Ir(Format):
    """Attributes, edges, dimensions and elements of OpenVINO IR, and bytes of its weights; openvino reads them, too.

    Not compared are results of a Loop that ends before its first iteration or long before its last one, which openvino 2026.4
    does not initialize, as sometimes those of a StridedSlice that both adds and shrinks axes; of a StridedSlice that both masks
    the beginning and shrinks the axis: openvino's CPU plugin begins at 0 there, its `evaluate` where `begin` says, as we do; and
    of an Interpolate as Pillow's along other axes than the last two, where the CPU plugin gives elements of the input. In IR 10
    openvino gives float32 for bool and float16.
    """

    suffixes = (".xml", ".bin")
    tests = PLUGINS / "frontend_openvino" / "tests"

    @functools.cached_property
    def seeds(self) -> Sequence[Parts]:
        import openvino as ov  # two seconds, which the other formats do not pay

        by_hand = module(self.tests / "_files.py")
        operations = module(self.tests / "_operations.py").OPERATIONS
        made = [(by_hand.XML.encode(), bytes(by_hand.BIN))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.xml")
            for name in module(self.tests / "test_mutations.py").SEEDS[1:]:
                ov.save_model(operations[name].model(), path, compress_to_fp16=False)
                made.append((path.read_bytes(), path.with_suffix(".bin").read_bytes()))
        return made

    def changed(self, parts: Parts, rng: Rng) -> Parts:
        kinds = module(self.tests / "test_mutations.py")
        if parts[1] and not rng.integers(4):
            return parts[0], kinds._changed_weights(parts[1], rng)
        return applied(kinds.MUTATIONS, parts[0], rng), parts[1]

    def run(self, core: dovetail.Core, parts: Parts) -> tuple[Mapping[str, Any], list[Any]]:
        feeds, found = run_model(core, core.read_model(parts[0], format="xml", weights=parts[1]), self.time_limit)
        self._dtypes = [array.dtype for array in found]
        return feeds, found

    def wanted(self, parts: Parts, feeds: Mapping[str, Any]) -> list[Any] | None:
        if any(f'type="{name}"'.lower().encode() in parts[0].lower() for name in UNLIKE_OPENVINO):  # in any spelling
            return None
        model = self._openvino.read_model(parts[0], parts[1])
        if any(_ends_early(one) or _shrinks_masked(one) or _mixes_channels(one) for one in model.get_ops()):
            return None
        theirs = self._openvino.compile_model(model, "CPU")([np.array(feed) for feed in feeds.values()])
        results = [np.array(theirs[index]) for index in range(len(theirs))]
        if b'version="10"' in parts[0].partition(b"<layers")[0]:
            pairs = zip(results, self._dtypes, strict=True)
            return [a.astype(dtype) if dtype in (np.bool_, np.float16) else a for a, dtype in pairs]
        return results

    @functools.cached_property
    def _openvino(self) -> Any:
        import openvino as ov

        core = ov.Core()
        core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "CPU_RUNTIME_CACHE_CAPACITY": 0})
        return core


class Pzkm(Format):
    """Bytes and numbers of .pzkm files. No other reader of the format runs here: onnxruntime runs what is written as ONNX."""

    suffixes = (".pzkm",)
    tests = PLUGINS / "frontend_pzkm" / "tests"

    @functools.cached_property
    def seeds(self) -> Sequence[Parts]:
        from dovetail_frontend_pzkm.wire import write_tables

        files, kinds = module(self.tests / "conftest.py"), module(self.tests / "test_mutations.py")
        return [(write_tables(made),) for made in (files.network(size=16), kinds._everything(files))]

    def changed(self, parts: Parts, rng: Rng) -> Parts:
        kinds = module(self.tests / "test_mutations.py")
        change = (kinds._flip, kinds._overwrite, kinds._splice, kinds._cut)[int(rng.integers(4))]
        return (change(parts[0], rng) or parts[0],)

    def run(self, core: dovetail.Core, parts: Parts) -> tuple[Mapping[str, Any], list[Any]]:
        self._core, self._model = core, core.read_model(parts[0], format="pzkm")
        return run_model(core, self._model, self.time_limit)

    def wanted(self, parts: Parts, feeds: Mapping[str, Any]) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            self._core.write_model(self._model, path)
            return by_onnxruntime(path.read_bytes(), feeds)


class CustomLayers(Format):
    """Attributes and elements of custom-layer XML, compiled for the first OpenCL device. Changed kernels are not run."""

    suffixes = (".layer.xml",)
    tests = PLUGINS / "gpu_opencl" / "tests"

    @functools.cached_property
    def seeds(self) -> Sequence[Parts]:
        shared = module(self.tests / "_custom_layers.py")
        define = '<Define name="angle" type="float" param="angle" default="0.5"/><Define name="four" type="int[]" param="sizes"/>'
        options = '<CompilerOptions options="-cl-mad-enable"/>'
        data = '<Data name="table" arg-index="2"/>'
        plain = shared.layer("New", "negate", defines=define, work='global="X, Y ,B*F" local="1,1,1" dim="input 0"')
        full = shared.layer("my::New", "both", defines=define, more=data).replace("<WorkSizes", f"{options}<WorkSizes")
        return [(plain.encode(),), (f'<?xml version="1.0"?>\n<!-- two --><Any>\n{plain}\n{full}</Any>'.encode(),)]

    def changed(self, parts: Parts, rng: Rng) -> Parts:
        kinds = module(PLUGINS / "frontend_openvino" / "tests" / "test_mutations.py")
        changes = [kinds._attribute] * 4 + [kinds._element, kinds._layer, kinds._flip, kinds._cut]
        return (applied(changes, parts[0], rng),)

    def run(self, core: dovetail.Core, parts: Parts) -> tuple[Mapping[str, Any], list[Any]]:
        shared = module(self.tests / "_custom_layers.py")
        node = shared.unknown("New", ["x", "table"], "y", angle=0.25, sizes=(1, 2, 3, 4))
        both = shared.NEGATE + "\n__kernel void both(__global const float* a, __global float* b, __global const float* c) {}\n"
        given = {"xml": parts[0], "sources": {"k.cl": both}, "name": "changed.xml"}
        dims = (1, 2, 3, 4)
        model = shared.model([node], {"x": dims}, {"y": dims}, {"table": np.ones(dims, np.float32)})
        with dovetail.Core(config=False) as session:
            session.set_property("OPENCL", {"CONFIG_FILE": given})
            session.compile_model(model, self._device).close()
        return {}, []

    @functools.cached_property
    def _device(self) -> str:
        return next(name for name in dovetail.Core(config=False).available_devices if name.startswith("OPENCL"))


class Configuration(Format):
    """Bytes and values of dovetail.yaml. PyYAML's own reading of a file must give the same values."""

    suffixes = (".yaml",)
    SEED = b"""# settings
plugins: [-dovetail-frontend-pzkm, -tim.vx]
prefer:
  ai.onnx::Relu: dovetail-ops-onnx
devices:
  NUMPY:
    FUSION: false
    MEMORY_LIMIT: 100000000
    STUB: []
  ONEDNN:
    INFERENCE_PRECISION_HINT: f32
    INFERENCE_NUM_THREADS: 1
    PLAN_CACHE: 4
"""
    VALUES = (
        b"-1",
        b"0",
        b"1e400",
        b"1:30",
        b"*a",
        b"&a x",
        b"!!python/object:os.system x",
        b"[[[[",
        b"{a: b}",
        b"~",
        b"\t",
        b"yes",
    )

    @functools.cached_property
    def seeds(self) -> Sequence[Parts]:
        return [
            (self.SEED,),
            (b"prefer: [dovetail-ops-onnx]\nplugins: all\ndevices:\n  numpy: {PASSES: -fold_pad, TIME_LIMIT: 2.5}\n",),
        ]

    def changed(self, parts: Parts, rng: Rng) -> Parts:
        kinds = module(PLUGINS / "frontend_openvino" / "tests" / "test_mutations.py")
        return (applied([self._value, self._value, kinds._layer, kinds._flip, kinds._cut], parts[0], rng),)

    def _value(self, content: bytes, rng: Rng) -> bytes:
        """Another word: one of the file's own, or one that YAML reads in its own way."""
        words = content.split(b" ")
        other = words[rng.integers(len(words))] if rng.integers(2) else self.VALUES[rng.integers(len(self.VALUES))]
        words[rng.integers(len(words))] = other
        return b" ".join(words)

    def run(self, core: dovetail.Core, parts: Parts) -> tuple[Mapping[str, Any], list[Any]]:
        from dovetail.config import Config

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "dovetail.yaml")
            path.write_bytes(parts[0])
            found = [np.array(plain(Config.load(path).values), object)]
            with dovetail.Core(config=path) as session:
                for device in ("NUMPY", "ONEDNN"):
                    session.compile_model(self._model, device)({"x": np.zeros(3, np.float32)})
        return {}, found

    def wanted(self, parts: Parts, feeds: Mapping[str, Any]) -> list[Any]:
        import yaml

        return [np.array(plain(yaml.safe_load(parts[0].decode())), object)]

    @functools.cached_property
    def _model(self) -> Any:
        good = module(HERE / "conftest.py")._build
        return dovetail.Core(config=False).read_model(good([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString(), "onnx")


def plain(values: Mapping[str, Any] | None) -> str:
    """A configuration as JSON: devices in capitals, a pin as `operator=name`, keys without a value left out."""

    def names(given: Any) -> list[str]:
        if isinstance(given, str):
            return [name.strip() for name in given.split(",")]
        if isinstance(given, Mapping):
            return [f"{operator.strip()}={name.strip()}" for operator, name in given.items()]
        return [name.strip() for name in given]

    given = values or {}
    devices = given.get("devices") or {}
    properties = {d.strip().upper(): {k.strip(): v for k, v in p.items()} for d, p in devices.items() if p is not None}
    lists = {key: names(given[key]) for key in ("plugins", "prefer") if given.get(key) is not None}
    return json.dumps({"devices": properties, **lists}, sort_keys=True, default=dict)


def applied(changes: Sequence[Callable[[bytes, Rng], bytes]], content: bytes, rng: Rng) -> bytes:
    """The content with one of the changes, the content itself where none of it can be changed so."""
    try:
        return changes[int(rng.integers(len(changes)))](content, rng) or content
    except (IndexError, ValueError):  # a change looks for a place that an earlier one has taken away
        return content


FORMATS: Mapping[str, Format] = {
    "onnx": Onnx(),
    "ir": Ir(),
    "pzkm": Pzkm(),
    "custom_layers": CustomLayers(),
    "config": Configuration(),
}
