"""On GPUs plans for other sizes hurry: they take kernels, merged nodes and parameters that are built. Final plans do not."""

import dataclasses
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import dovetail
from dovetail.device import TypedNode, WorkBudget
from dovetail.errors import CompileError, RunCancelled
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.program import Programs, _quietly_build
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.relu import Relu

Sources = list[tuple[str, str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Entry and source of all programs that plans ask for, built or not."""
    found: Sources = []
    inner = Programs.get

    def get(self: Programs, launch: Launch, node: str) -> Any:
        found.append((launch.entry, launch.source))
        return inner(self, launch, node)

    monkeypatch.setattr(Programs, "get", get)
    return found


@pytest.fixture
def weights(rng: Any) -> list[Any]:
    shapes = ((384, 64, 1, 1), (384, 1, 3, 3), (64, 384, 1, 1))
    return [rng.standard_normal(shape).astype(np.float32) / 8 for shape in shapes]


def residual(weights: list[Any]) -> dovetail.Model:
    """The convolutions of an inverted residual of N images of 14 x 14."""
    g = dovetail.GraphBuilder()
    wide, deep, narrow = (g.constant(w) for w in weights)
    x = g.node(Relu(), g.node(Conv(), g.input("x", "float32", ("N", 64, 14, 14)), wide, name="wide"))
    y = g.node(Conv(group=384, pads=(1, 1, 1, 1)), x, deep, name="deep")
    return g.model([g.node(Conv(), y, narrow, name="narrow")])


def expected(bench: Any, x: Any, weights: list[Any]) -> Any:
    """In float64."""
    wide, deep, narrow = weights
    middle = np.maximum(bench.convolve(x, wide, 1, (0,) * 4, 1), 0)
    return bench.convolve(bench.convolve(middle, deep, 1, (1,) * 4, 384), narrow, 1, (0,) * 4, 1)


def kernels(compiled: Any, images: int) -> list[str]:
    return [node.kernel for node in compiled.plans[((images, 64, 14, 14),)].nodes]


def test_other_batches_need_no_program_until_they_run_again(
    gpu: dovetail.Core, asked: Sources, weights: list[Any], bench: Any, rng: Any
) -> None:
    """At one image two convolutions are one launch, at 8 they are faster alone."""
    compiled, fresh = (gpu.compile_model(residual(weights), "OPENCL.0") for _ in range(2))
    request, built = compiled.create_infer_request(), set[tuple[str, str]]()
    for images in (1, 8, 3):
        x = rng.standard_normal((images, 64, 14, 14)).astype(np.float32)
        reference = expected(bench, x, weights)
        asked.clear()
        np.testing.assert_allclose(request.infer([x])[0], reference, rtol=1e-4, atol=1e-4)
        assert images == 1 or {*asked} <= built
        assert kernels(compiled, images) == ["pointwise_depthwise", "conv_tiled"]
        asked.clear()
        compiled.finish_compiling()
        assert asked or images == 1
        built |= {*asked}
        np.testing.assert_allclose(request.infer([x])[0], reference, rtol=1e-4, atol=1e-4)
        if images != 3:
            fresh.plan(((images, 64, 14, 14),))
            fresh.finish_compiling()
        if images == 1:
            built |= {*asked}
    assert kernels(compiled, 8) == kernels(fresh, 8) != kernels(compiled, 1)


def test_stored_plans_hurry_without_the_model_and_are_made_final_from_it(
    gpu: dovetail.Core, weights: list[Any], bench: Any, rng: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.write_model(residual(weights), tmp_path / "m.onnx")
    compiled = gpu.compile_model(tmp_path / "m.onnx", "OPENCL.0")
    inputs = {images: rng.standard_normal((images, 64, 14, 14)).astype(np.float32) for images in (1, 8)}
    for x in inputs.values():
        compiled([x])
    compiled.export_model(tmp_path / "m.plans")
    compiled.finish_compiling()

    def run(imported: dovetail.CompiledModel) -> None:
        for x in inputs.values():
            np.testing.assert_allclose(imported([x])[0], expected(bench, x, weights), rtol=1e-4, atol=1e-4)

    imported = dovetail.Core().import_model(tmp_path / "m.plans")
    run(imported)
    assert "nodes" not in vars(imported.model.graph)
    assert kernels(imported, 8) == ["pointwise_depthwise", "conv_tiled"]
    imported.finish_compiling()
    run(imported)
    assert kernels(imported, 8) == kernels(compiled, 8) != kernels(imported, 1)
    (tmp_path / "m.onnx").unlink()
    imported = dovetail.Core().import_model(tmp_path / "m.plans")
    run(imported)
    imported.finish_compiling()
    run(imported)
    assert "a provisional plan" in caplog.text
    assert "m.onnx' changed, or is gone" in caplog.text


def test_a_final_plan_is_that_of_a_first_one(gpu: dovetail.Core, asked: Sources, weights: list[Any]) -> None:
    """But for parameters that are almost as fast: of one image and 64 none are."""
    found = []
    for images in ((64,), (1, 64)):
        compiled = gpu.compile_model(residual(weights), "OPENCL.0")
        for count in images:
            asked.clear()
            compiled.plan(((count, 64, 14, 14),))
        if len(images) > 1:
            asked.clear()
            compiled.finish_compiling()
        found.append(sorted(asked))
    assert found[0] == found[1]


def test_separate_nodes_stay_separate(gpu: dovetail.Core, asked: Sources, weights: list[Any]) -> None:
    compiled = gpu.compile_model(residual(weights), "OPENCL.0")
    for images in (64, 1):
        known = {*asked}
        compiled.plan(((images, 64, 14, 14),))
        assert len(kernels(compiled, images)) == 3
    assert {*asked} == known
    compiled.finish_compiling()
    assert kernels(compiled, 1) == ["pointwise_depthwise", "conv_tiled"]


def test_models_with_states_do_not_hurry(gpu: dovetail.Core, rng: Any) -> None:
    """A prompt of five tokens, then one by one, which need kernels of their own from the first one on."""
    tokens, room = rng.standard_normal((1, 12, 64)).astype(np.float32), 16
    g = dovetail.GraphBuilder()
    query, counts = g.input("query", "float32", (1, "sequence", 64)), g.input("lengths", "int32", (1,))
    caches = [g.input(f"past.{name}", "float32", (1, 1, room, 16)) for name in ("key", "value")]
    g.node(CachedAttention(2, 1, room), query, "", "", *caches, counts, outputs=["y", "present.key", "present.value"])
    model = g.model(["y", "present.key", "present.value"])
    pasts = {f"past.{name}": np.zeros((1, 1, room, 16), np.float32) for name in ("key", "value")}
    with gpu.compile_model(model, "NUMPY") as numpy:
        whole = numpy({"query": tokens, "lengths": [11], **pasts})["y"]
    compiled = gpu.compile_model(model, "OPENCL.0", {"STATE": "past.*:present.*"})
    request, found = compiled.create_infer_request(), []
    for number, part in enumerate((tokens[:, :5], *(tokens[:, i : i + 1] for i in range(5, 12)))):
        found.append(request.infer({"query": part, "lengths": [4 + number]})["y"])
        assert request._bound.plan.better is None  # type: ignore[union-attr]
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole, rtol=1e-4, atol=1e-5)


def test_who_hurries(device: Any, kind_device: Any, bench: Any) -> None:
    """GPUs, for one model, unless they are to tune: what is built may not have been tried then."""
    graph, _ = bench.single(bench.op("Relu"), [np.ones((3, 5), np.float32)], ())
    gpu = kind_device("GPU")
    for one, hurries in (
        (gpu.configured({}), True),
        (gpu.configured({}).for_streams(2), True),
        (gpu.configured({"TUNE": True}), False),
        (gpu, False),
        (kind_device("CPU").configured({}), False),
    ):
        assert [one.compile(graph, {}).provisional for _ in range(2)] == [False, hurries]
        assert not one.afresh().compile(graph, {}).provisional


def test_parameters_that_are_settled(bench: Any) -> None:
    graph, _ = bench.single(bench.op("Relu"), [np.ones((3, 5), np.float32)], ())
    node, packed = TypedNode.of(graph.nodes[0], graph), PackedConstants()
    assert [packed.settled("k", node, best) for best in (4, 2)] == [4, 2]
    packed.hurried = True
    assert packed.settled("k", node, 4) == 4  # built
    assert packed.settled("k", node, 8) == 2  # the latest
    assert packed.settled("k", node, 8, lambda built: built == 4) == 4
    assert packed.settled("k", node, 1, lambda built: built == 1) == 1  # nothing else is usable
    assert packed.settled("other", node, 8) == 8
    afresh = packed.afresh()
    assert afresh.settled("k", node, 16) == 16
    assert packed.settled("k", node, 32) == 1


def test_a_final_plan_leaves_what_was_found_for_hurried_ones(bench: Any) -> None:
    """Its nodes have the same names, and are other objects."""
    made = []
    packed, nodes = PackedConstants(), []
    for _ in range(2):
        graph, _feeds = bench.single(bench.op("Relu"), [np.ones((3, 5), np.float32)], ())
        nodes.append(TypedNode.of(graph.nodes[0], graph))
    for store, node in ((packed, nodes[0]), (packed.afresh(), nodes[1]), (packed, nodes[0])):
        store.once("k", node, "key", lambda node=node: made.append(node))
    assert made == nodes


def programs_and_launches(device: Any) -> tuple[Programs, list[Launch]]:
    """None of them is built yet."""
    launches = [Launch("x.cl", f"__kernel void k{i}(__global int* x) {{ x[0] = {i}; }}", f"k{i}", (), (1,)) for i in range(2)]
    return Programs(device._context, device._device, device.caps, device.programs._cache), launches


def test_what_another_context_has_compiled_is_not_compiled_again(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, launches = programs_and_launches(device)
    programs.get(launches[0], "node")
    programs.prepare([(launch, "node") for launch in launches], apart=True)
    monkeypatch.setattr(Programs, "_from_source", None)
    built = programs.get(launches[1], "node")
    assert built.context == device._context
    assert (programs.builds, programs.hits) == (2, 0)
    buffer = cl.Buffer(device._context, cl.mem_flags.READ_WRITE, 4)
    with cl.CommandQueue(device._context) as queue:
        built.k1(queue, (1,), None, buffer)
        cl.enqueue_copy(queue, found := np.zeros(1, np.int32), buffer)
    assert found == 1


def test_what_no_context_compiles_is_an_error_of_its_node(device: Any) -> None:
    programs, launches = programs_and_launches(device)
    wrong = dataclasses.replace(launches[0], source="__kernel void k0(")
    programs.prepare([(wrong, "node"), (launches[1], "other")], apart=True)
    with pytest.raises(CompileError, match="node node: the kernel 'k0'"):
        programs.get(wrong, "node")
    programs.get(launches[1], "other")


def test_a_run_that_was_cancelled_builds_no_further_program(device: Any) -> None:
    programs, launches = programs_and_launches(device)
    built = programs.get(launches[0], "node")
    with WorkBudget() as budget:
        budget.cancel()
        assert programs.get(launches[0], "node") is built
        with pytest.raises(RunCancelled, match="node other"):
            programs.get(launches[1], "other")
        with pytest.raises(RunCancelled, match="node other"):
            programs.prepare([(launches[1], "other")], apart=True)
    assert programs.builds == 1


def test_a_final_plan_begins_while_another_plan_notes_what_it_builds() -> None:
    """Each on its thread. It was an error at random, after which the provisional plan stayed."""
    packed = PackedConstants()

    class Noted(list[Any]):
        def __iter__(self) -> Any:
            packed.built_with["kernel", f"node {len(packed.built_with)}"] = []
            return super().__iter__()

    packed.built_with |= {("kernel", str(i)): Noted([i]) for i in range(3)}
    before = {*packed.built_with}
    assert {*packed.afresh().built_with} == before != {*packed.built_with}


def test_builds_of_two_threads_leave_the_filters_of_warnings_as_they_are() -> None:
    """Where both were inside at once, the second to begin, which ended last, restored what the first had set."""
    begun, both, ended = list[int](), threading.Event(), threading.Event()

    class Built:
        def build(self, **_: Any) -> "Built":
            begun.append(threading.get_ident())
            if len(begun) == 2:
                both.set()
                assert ended.wait(60)
            else:
                both.wait(0.5)
            return self

    def build() -> None:
        _quietly_build(Built(), ())
        ended.set()

    before, shown = [*warnings.filters], warnings.showwarning
    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 2
    assert warnings.filters == before
    assert warnings.showwarning is shown
