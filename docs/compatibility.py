"""Writes docs/reference/compatibility.md: versions that were tried, and platforms that have wheels of all dependencies.

`python docs/compatibility.py` writes the page from docs/reference/compatibility.json. Before it, results are written anew:
`versions` installs the wheels of this tree with the oldest and the newest dependencies under every Python on PATH, and runs the
demo and the conformance kit there; `platforms` looks for wheels of every dependency on the package index, and installs nothing.
Both need the network and the program uv, and take minutes: CI compares only the page with the results.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
RESULTS = PAGE.with_suffix(".json")
Results = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Run what is named, and write the page; 1 when something failed."""
    unknown = set(arguments) - {"versions", "platforms"}
    if unknown:
        print(__doc__, file=sys.stderr)
        return 2
    found: Results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if "versions" in arguments:
        with tempfile.TemporaryDirectory() as folder:
            build_wheels(Path(folder))
            found["versions"] = {"date": today(), "rows": [*versions(Path(folder))]}
    if "platforms" in arguments:
        found["platforms"] = {"date": today(), "rows": [*platforms()]}
    RESULTS.write_text(stored(found), encoding="utf-8")
    PAGE.write_text(rendered(), encoding="utf-8")
    return int(any(row.get("failed") for row in found.get("versions", {}).get("rows", ())))


def stored(found: Results) -> str:
    """As JSON with one line for each row, so that differences can be read."""
    sections = [
        f'{json.dumps(name)}: {{"date": {json.dumps(section["date"])}, "rows": [\n'
        + ",\n".join(json.dumps(row) for row in section["rows"])
        + "\n]}"
        for name, section in found.items()
    ]
    return "{\n" + ",\n".join(sections) + "\n}\n"


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command with the environment of a user's shell, without that of this Python."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV") and not k.startswith("DOVETAIL_")}
    return subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, env=kept, check=False)


def build_wheels(folder: Path) -> None:
    """The wheels of all packages of this tree. Raises `SystemExit` with what the build printed."""
    for project in ("core", *sorted(str(p.parent.relative_to(ROOT)) for p in ROOT.glob("[pc]*/*/pyproject.toml"))):
        done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT / project)
        if done.returncode:
            raise SystemExit(done.stderr)


# --- versions ------------------------------------------------------------------------------------------------------------

PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
LEFT_OUT = {"3.14t": ("google-re2",)}
"""Optional dependencies of which the index has no wheel for a Python; the table names them."""
WATCHED = ("numpy", "pluggy", "pyopencl", "onnx", "protobuf", "ml_dtypes")
"""Dependencies whose versions the table shows."""
CHECKS = (
    ("demo", "demo", "--no-html", "--json"),
    ("NUMPY", "plugins", "test", "dovetail-cpu-numpy", "--json"),
    ("onnx", "plugins", "test", "dovetail-frontend-onnx", "--json"),
)
"""Name of a check -> the command, whose exit code decides."""


def versions(wheels: Path) -> Iterator[Results]:
    """A row for each Python and each end of the ranges of dependencies. A Python that is not there has a row with the reason."""
    for python in PYTHONS:
        found = run("uv", "python", "find", "--no-python-downloads", python)
        if found.returncode:
            yield {"python": python, "missing": "not tried: no interpreter on the machine"}
            continue
        for resolution in ("lowest-direct", "highest"):
            with tempfile.TemporaryDirectory() as folder:
                yield try_versions(Path(folder), found.stdout.strip(), python, resolution, wheels)


def try_versions(folder: Path, interpreter: str, python: str, resolution: str, wheels: Path) -> Results:
    """Install everything into a new environment, and run the checks there."""
    left_out = LEFT_OUT.get(python, ())
    without = f", without {', '.join(left_out)}" if left_out else ""
    row: Results = {"python": python, "dependencies": ("oldest" if resolution == "lowest-direct" else "newest") + without}
    run("uv", "venv", "--no-python-downloads", "--python", interpreter, folder / "env")
    program = folder / "env" / "bin" / "python"
    # Dependencies are named one by one, because lowest-direct takes the oldest only of what is asked for.
    asked = [*own_wheels(wheels), *(str(one) for one in third_party(python) if one.name not in left_out)]
    options = ("--resolution", resolution, "--only-binary", ":all:", "--python", program)
    done = run("uv", "pip", "install", *options, *asked)
    if done.returncode:
        return {**row, "failed": {"install": last_line(done.stderr)}}
    listed = json.loads(run("uv", "pip", "list", "--format", "json", "--python", program).stdout)
    installed = {one["name"].replace("-", "_"): one["version"] for one in listed}
    row["installed"] = {name: installed[name] for name in WATCHED if name in installed}
    failed = {}
    for name, *command in CHECKS:
        done = run(program, "-m", "dovetail", *command, cwd=folder)
        if name == "demo" and done.returncode == 0:
            row["devices"] = sorted({one["device"].partition(".")[0] for one in json.loads(done.stdout)["devices"]})
        if done.returncode:
            failed[name] = last_line(done.stderr or done.stdout)
    return {**row, "failed": failed} if failed else row


def last_line(text: str) -> str:
    """The last line that says something, without paths of this machine."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"(/[\w.-]+)+/", ".../", lines[-1] if lines else "no output")[:200]


def own_wheels(wheels: Path) -> list[str]:
    """The wheels of `dovetail[all]` as requirements, with the extras that bring optional dependencies."""
    extras = {"dovetail_gpu_opencl": "[pocl]", "dovetail_frontend_onnx": "[upgrade,narrow]"}
    wanted = {name.replace("-", "_") for name in all_packages()}
    names = {path: path.name.partition("-")[0] for path in sorted(wheels.glob("*.whl"))}
    return [f"{path}{extras.get(name, '')}" for path, name in names.items() if name in wanted]


def third_party(python: str) -> list[Requirement]:
    """The requirements of the packages on others on this platform, extras for tests left out, as `dovetail[all]` brings it."""
    found = {}
    environment = {"python_version": python.rstrip("t"), "python_full_version": f"{python.rstrip('t')}.0"}
    for name in all_packages():
        for one in requirements(name):
            if one.name not in PROJECTS and (one.marker is None or one.marker.evaluate(environment)):
                found[str(one)] = one
    return list(found.values())


# --- platforms -----------------------------------------------------------------------------------------------------------

LINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
PLATFORMS: dict[str, tuple[tuple[str, ...], str, str, str, str]] = {
    "Linux, glibc, x86_64": (tuple(f"{tag}_x86_64" for tag in LINUX), "linux", "x86_64", "Linux", "x86_64-manylinux_2_28"),
    "Linux, glibc, aarch64": (tuple(f"{tag}_aarch64" for tag in LINUX), "linux", "aarch64", "Linux", "aarch64-manylinux_2_28"),
    "Linux, musl, x86_64": (
        ("musllinux_1_2_x86_64", "musllinux_1_1_x86_64"),
        "linux",
        "x86_64",
        "Linux",
        "x86_64-unknown-linux-musl",
    ),
    "Linux, musl, aarch64": (
        ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64"),
        "linux",
        "aarch64",
        "Linux",
        "aarch64-unknown-linux-musl",
    ),
    "macOS, x86_64": (("macosx_14_0_x86_64",), "darwin", "x86_64", "Darwin", "x86_64-apple-darwin"),
    "macOS, arm64": (("macosx_14_0_arm64",), "darwin", "arm64", "Darwin", "aarch64-apple-darwin"),
    "Windows, x86_64": (("win_amd64",), "win32", "AMD64", "Windows", "x86_64-pc-windows-msvc"),
}
"""Name -> wheel tags, and what markers see as sys_platform, platform_machine and platform_system; the name that uv has for it."""
PYTHON = "3.13"
SETS = {
    "core, NUMPY, .onnx": ("dovetail", "dovetail-cpu-numpy", "dovetail-frontend-onnx"),
    "and OPENCL": ("dovetail", "dovetail-cpu-numpy", "dovetail-frontend-onnx", "dovetail-gpu-opencl"),
    "and bfloat16": ("dovetail", "dovetail-cpu-numpy", "dovetail-frontend-onnx[narrow]", "dovetail-gpu-opencl"),
    "`dovetail[all]`": ("dovetail[all]",),
}
"""Column of the table -> its packages."""


OLDER_SHOWN = ("pyopencl", "pytools", "onnx", "ml-dtypes")
"""Dependencies whose older versions have wheels for more platforms than the newest."""


def platforms() -> Iterator[Results]:
    """A row for each platform: what has no wheel there. pip evaluates markers for its own platform, so it is not asked."""
    for name, (tags, system, machine, named, wanted) in PLATFORMS.items():
        environment = {
            **default_environment(),
            "sys_platform": system,
            "platform_machine": machine,
            "platform_system": named,
            "os_name": "nt" if system == "win32" else "posix",
            "python_version": PYTHON,
            "python_full_version": f"{PYTHON}.0",
        }
        index = Index(tags, environment)
        sets: dict[str, Any] = {}
        for column, packages in SETS.items():
            reached = index.reached([Requirement(text) for text in packages])
            lacking = {one.name for one in reached if index.wheels[bare(one)] is None}
            older = older_versions([one for one in reached if one in index.direct], wanted) if lacking else None
            sets[column] = {"lacking": sorted(lacking), **({"older": older} if older else {})}
        yield {"platform": name, "sets": sets}


def older_versions(wanted: Sequence[Requirement], platform: str) -> str:
    """Versions with wheels of everything, if a platform has any, as `pip install --only-binary :all:` finds them."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "requirements.in"
        asked.write_text("".join(f"{one}\n" for one in wanted), encoding="utf-8")
        options = (
            "--python-platform",
            platform,
            "--python-version",
            PYTHON,
            "--only-binary",
            ":all:",
            "--no-header",
            "--no-annotate",
        )
        done = run("uv", "pip", "compile", "-q", *options, asked)
    return " ".join(done.stdout.split()) if done.returncode == 0 else ""


def bare(one: Requirement) -> str:
    """The requirement without extras and marker."""
    return f"{one.name}{one.specifier}"


class Index:
    """The package index as one platform sees it: `wheels` has what the wheel for a requirement requires, None without a wheel."""

    def __init__(self, tags: Sequence[str], environment: dict[str, Any]) -> None:
        self.wheels: dict[str, list[Requirement] | None] = {}
        self.direct: list[Requirement] = []
        self._tags = tags
        self._environment = environment

    def reached(self, wanted: Sequence[Requirement]) -> list[Requirement]:
        """The requirements that the index has to meet for `wanted`, direct and indirect ones."""
        found: dict[str, Requirement] = {}
        queue = [*wanted]
        while queue:
            fresh = {str(one): one for one in queue if self._applies(one) and str(one) not in found}
            found.update(fresh)
            self._look_up({bare(one) for one in fresh.values() if one.name not in PROJECTS} - set(self.wheels))
            queue = [below for one in fresh.values() for below in self._below(one)]
        return [one for one in found.values() if one.name not in PROJECTS]

    def _below(self, one: Requirement) -> list[Requirement]:
        if one.name in PROJECTS:
            needed = [*requirements(one.name), *requirements(one.name, one.extras)]
            self.direct += [below for below in needed if below.name not in PROJECTS]
            return needed
        return [below for below in self.wheels[bare(one)] or () if self._applies(below, one.extras)]

    def _applies(self, one: Requirement, extras: set[str] | frozenset[str] = frozenset()) -> bool:
        return one.marker is None or any(one.marker.evaluate({**self._environment, "extra": e}) for e in ("", *extras))

    def _look_up(self, asked: set[str]) -> None:
        """Ask for all at once; a requirement that has no wheel is left out, and the others are asked for again."""
        while asked:
            platform = [word for tag in self._tags for word in ("--platform", tag)]
            with tempfile.TemporaryDirectory() as target:
                options = ("--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:", "--target", target)
                where = ("--python-version", PYTHON, "--implementation", "cp", *platform)
                done = run(sys.executable, "-m", "pip", "install", "-q", *options, *where, "--report", "-", *sorted(asked))
            lacking = re.search(r"No matching distribution found for (\S+)", done.stderr)
            if lacking is None:
                break
            (refused,) = (text for text in asked if str(Requirement(text)) == str(Requirement(lacking[1])))
            self.wheels[refused] = None
            asked = asked - {refused}
        else:
            return
        if done.returncode:
            raise SystemExit(done.stderr)
        listed = {canonical(one["metadata"]["name"]): one["metadata"] for one in json.loads(done.stdout)["install"]}
        for text in asked:
            needed = listed[canonical(Requirement(text).name)].get("requires_dist", ())
            self.wheels[text] = [Requirement(one) for one in needed]


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_project(path: Path) -> Results:
    """The table `project` of a package of this tree."""
    project: Results = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return project


PROJECTS = {
    project["name"]: project
    for project in map(read_project, (ROOT / "core/pyproject.toml", *ROOT.glob("[pc]*/*/pyproject.toml")))
}


def requirements(name: str, extras: set[str] | frozenset[str] | None = None) -> list[Requirement]:
    """The requirements of a package of this tree; with `extras` those that they add."""
    project = PROJECTS[name]
    if extras is None:
        return [Requirement(text) for text in project["dependencies"]]
    return [Requirement(text) for extra in extras for text in project["optional-dependencies"][extra]]


def all_packages() -> list[str]:
    """The packages of `dovetail[all]`, and the core."""
    return ["dovetail", *dict.fromkeys(one.name for one in requirements("dovetail", {"all"}))]


# --- the page ------------------------------------------------------------------------------------------------------------

HEAD = """\
# Compatibility

<!-- Written by docs/compatibility.py from docs/reference/compatibility.json. Do not edit: run `python docs/compatibility.py`. -->
"""
VERSIONS = """\
## Versions

Under every Python on the machine, the packages of `dovetail[all]` from wheels, with the oldest versions of their direct
dependencies that have wheels for that Python and that the packages accept, and with the newest. Checked in each environment:
`dovetail demo` on the devices that are named, and the conformance kit of NUMPY and of the ONNX frontend.
`python docs/compatibility.py versions`, {date}.

Under 3.14t, without the GIL, 10,664 tests of `pytest -m quick` pass (2026-11-23; `PYTHON_GIL=0`, because OpenVINO, which some
tests compare with, would switch it on). 17 are left out: 15 of RegexFullMatch, whose google-re2 has no wheel there, and 2
about when memory is freed; and those of dovetail-generate, dovetail-kserve and dovetail-ray, whose engines have no wheels
there either. 16 threads with 10,000 requests each on NUMPY get the right results.

In Python 3.14 Ctrl-C can leave a lock taken that a `with` statement was about to hold
([CPython's issue 148874](https://github.com/python/cpython/issues/148874), mended in 3.15). Requests, compiled models and caches
have a lock there that is free afterwards; other locks, such as those around compiling, have not.
"""
DRIVERS = """\
## OpenCL on CPUs

CI runs PoCL 3.0, which pip installs, and PoCL 3.1. Others were tried by hand, on an AMD CPU with AVX-512: PoCL 7.1 on 2026-11-28
under Python 3.14.8, the others on 2026-11-29. Models are ResNet-50, MobileNetV2 and MiniLM with their forms in float16 and
int8 (`benchmarks/models.py`). "Agree" is with onnxruntime: float32 to 7e-6 of the largest output, int8 as on PoCL 3. Tests are
those of `plugins/gpu_opencl`, before what they showed was mended.

| Driver | Models | Tests passed, failed | Conformance |
| --- | --- | --- | --- |
| PoCL 6.0, Debian 13 (LLVM 18) | agree; before the mend int8 ended the process | 1,867, 6 | 313 passed |
| PoCL 7.1 (LLVM 21) | not run | 1,693, 14 | not run |
| Intel 2026.2.0, `intel-opencl-rt` | agree | 1,825, 48 | 313 passed |
| Intel 2023.2.4 | float32 and ResNet-50 in int8 agree | 1,047, 1 of the first 1,048 | not run |
| Intel 2021.4.0 | float32 agrees; dynamic int8 ends the process | not finished | not run |
| rusticl, Mesa 25.0.7, Debian 13 (LLVM 19) | MobileNetV2 in float32 and int8 agrees | 143, 2 of seven files | not run |

- PoCL 4.0 to 6.0 takes inline assembly, by which kernels multiply bytes, for an allocation of local memory and ends the
  process (7.0 has it mended), so bytes are multiplied as on CPUs with AVX2 there: ResNet-50 (QDQ) takes 32 ms, on PoCL 3.1
  15, on Intel's driver, which compiles plain OpenCL C for it, 79.
- Of the 6 failures on PoCL 6.0, 4 end the process in kernels for GPUs, which tests build for the CPU without optimization;
  others of these do so with optimization. The other 2 came from Python 3.13 and from a source that changed meanwhile, and
  pass now. Operators' own kernels with barriers may meet the same faults. `POCL_WORK_GROUP_METHOD=cbs` avoids the end of the
  process, but some results were wrong.
- Of the 48 failures on Intel's driver, 42 were of guard bytes (it forgets a buffer that only its parts use), 4 of binaries
  that differ from build to build, 2 of the environment. `PINNED` with `QUEUE=OUT_OF_ORDER` hung. All of these pass now. Of
  2021.4.0 compiler and kernels ended the process several times: take a later one.
- The failures on 2023.2.4 (32 KiB of local memory) and rusticl (no float64) were assumptions of tests. rusticl takes 3 s for
  MobileNetV2, PoCL 25 ms.
- On PoCL 7.1 all 14,842 tests of `pytest -m quick` passed. 11 failures were of images with one float for each element, which
  it has no longer: kernels with such images are refused there, and their tests are skipped now. The other 3 run attention
  for the matrix units of NVIDIA's GPUs on a CPU, which no CPU chooses. With `POCL_WORK_GROUP_METHOD=cbs` they pass, and with
  PoCL's default, `loopvec`, some of their results are wrong.

## oneDNN

CI runs oneDNN 3.2, which `onednn-cpu-gomp` brings. Others were tried by hand on 2026-11-29, with AVX-512:

| oneDNN | Result |
| --- | --- |
| 3.2.0, `onednn-cpu-iomp` and `onednn-cpu-tbb` | the demo runs, with `intel-cmplr-lib-rt` on `LD_LIBRARY_PATH` |
| 3.7.2, Debian 13 (`libdnnl3.6`) | 4,549 tests of the package and 454 of conformance and quantized models passed |
| 3.12.1, Debian sid (`libdnnl3.6`) | 4,549 tests of the package and 454 of conformance and quantized models passed |
| 3.3 and 3.13.2, `onednn` 2024.0.0 and 2026.1.0 | refused: their CPU engine is SYCL's, which this device does not use |

- With 3.12.1 data with channels last are wrong behind a binary primitive with an operand along the last axis. Such a chain
  is refused, whatever the version, and its steps are separate nodes.
- ResNet-50, MobileNetV2 and MiniLM and their forms in float16 and int8 take one thread as long with 3.7 as with 3.2, within
  3 %, and up to 7 % longer with 3.12 (CPU time).
- `onednn` and `onednn-cpu-gomp` install the same file, `libdnnl.so.3`. Where both were installed, `pip uninstall onednn` and
  `pip install --force-reinstall onednn-cpu-gomp` bring the device back.
"""
WRITERS = """\
## Models of other tools

Tried by hand on 2026-11-28, by scripts that are not kept: models by these tools on NUMPY and ONEDNN, many on OPENCL (PoCL) too,
against onnxruntime, OpenVINO or the framework itself. "Remains" leaves out files that onnxruntime refuses too, and roundings.

| Tool | Models | Remains |
| --- | --- | --- |
| PyTorch's exporters: timm, torch_geometric, transformers | 397 | nothing |
| optimum-onnx 0.1: decoders with caches, merged ones, encoders, speech, images, in tiny configurations | 67 | nothing |
| PyTorch's newer exporter: diffusers, segmentation_models_pytorch, MONAI, decoders with caches | 39 | nothing |
| PyTorch's newer exporter: torchvision, timm, transformers, 2026-11-29 | 47 | equal scores (RT-DETR); NaN in ArgMax (TAPAS) |
| PyTorch's older exporter: torchvision's detectors, untrained, 2026-11-29 | 7 | nearly equal boxes of SSD and Keypoint R-CNN |
| tf2onnx with Keras 3, 2026-11-29 | 73 | nothing; onnxruntime refuses 4 more |
| skl2onnx, onnxmltools, CatBoost, 2026-11-29 | 223 | 7 Gaussian processes (ill-conditioned); a target without leaves |
| PyTorch's older exporter with operator sets 7 and 8 | 14 | BatchNormalization 7 with five outputs is refused |
| ultralytics, torchaudio, transformers; quantized, float16 | 49 | a length above 65,504, cast to float16, is infinite |
| tf2onnx, jax2onnx, Keras, torchaudio, OpenVINO's PyTorch frontend, skl2onnx, onnxslim | 188 | nothing |
| onnxruntime: `quantize_static`, `quantize_dynamic`, float16, optimized models | 301 | `com.microsoft.nchwc` is refused |
| onnxruntime: `transformers.optimizer`; quantizers of MatMulNBits and MatMulBnb4 | 227 | nothing |
| NNCF: weights of 8 and 4 bits, NF4, MXFP4, FP8, CB4, NVFP4, and `quantize` | 100 | CB4, NVFP4, some NF4: up to 3e-4 |
| paddle2onnx 2.1 with Paddle 3.3.1 | 136 | nothing |
| onnxscript, Spox, ndonnx, functions in models | 15 | nothing |
| Brevitas, PyTorch's pt2e, torchao | 41 | nothing |
| LightGBM, XGBoost, CatBoost, Hummingbird | 56 | a target without leaves has its base value, in onnxruntime 0 |
| External data, sparse constants, IR versions 3 to 14, operator sets to 28 | 82 | nothing |
| OpenVINO's stateful decoders, also in f16, int8, int4 and NF4 | 6 | rows of attention whose keys are all masked are finite |
"""
SUITES = """\
## Tests of other projects

Tests that call `onnxruntime`, on 2026-11-29 with `DOVETAIL_ONNXRUNTIME=1`, ONEDNN, by scripts that are not kept. "Remains" are
those that onnxruntime passes, which ran the failed ones. 199 samples of onnxscript pass for which its tests want an error.

| Tests | Run | Remains |
| --- | --- | --- |
| onnxruntime 1.21, `test/python/quantization` | 197 | Conv without spatial axes (4), texts of errors (3), Resize without sizes |
| onnxruntime 1.21, `test/python/transformers`: attention, rotary embeddings, fusions | 34 | nothing |
| the same: GroupQueryAttention | 3 | windows as 1.32 has them; prompts whose `seqlens_k` is one too large |
| sklearn-onnx, July 2026 | 1,135 | the kind of an error (4), sparse indices out of order |
| onnxscript, 08-2026: `torch_lib/ops_test.py` | 1,852 | reductions of scalars by axis; [`align_corners`](onnx_differences.md) |
"""
PLATFORM_HEAD = """\
## Platforms

Whether everything installs from wheels, without a compiler: each dependency of each package was looked for on the package
index, for CPython {python} and by the platform's tags and markers. A column has all that is in those before it. This says that
pip finds wheels, and not that the tests ran there: they run on Linux, glibc, x86_64.
`python docs/compatibility.py platforms`, {date}.
"""


def rendered() -> str:
    """The whole page, from the stored results."""
    found: Results = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts = [HEAD]
    if "versions" in found:
        parts += [VERSIONS.format(date=found["versions"]["date"]), versions_table(found["versions"]["rows"])]
        parts += [DRIVERS, WRITERS, SUITES]
    if "platforms" in found:
        date = found["platforms"]["date"]
        parts += [PLATFORM_HEAD.format(python=PYTHON, date=date), platform_table(found["platforms"]["rows"])]
    return "\n".join(parts)


def versions_table(rows: Sequence[Results]) -> str:
    """A line for each environment."""
    lines = [["Python", "Dependencies", "Result", "Devices", *WATCHED]]
    for row in rows:
        installed = [row.get("installed", {}).get(name, "") for name in WATCHED]
        failed = "; ".join(f"{name}: {text}" for name, text in row.get("failed", {}).items())
        result = row.get("missing", f"failed: {failed}" if failed else "passed")
        lines.append([row["python"], row.get("dependencies", ""), result, ", ".join(row.get("devices", ())), *installed])
    return table(lines)


def platform_table(rows: Sequence[Results]) -> str:
    """A line for each platform; a cell names what has no wheel."""
    cells = [[row["platform"], *(platform_cell(row["sets"][column]) for column in SETS)] for row in rows]
    return table([["Platform", *SETS], *cells])


def platform_cell(found: Results) -> str:
    """`yes`, or what is lacking."""
    lacking = ", ".join(f"`{name}`" for name in found["lacking"])
    if not lacking:
        return "yes"
    changed = [word for word in found.get("older", "").split() if word.partition("==")[0] in OLDER_SHOWN]
    return f"with `--only-binary :all:`, which takes {', '.join(changed)}" if changed else f"no wheel of {lacking}"


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    head, *rest = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
    return head + "| --- " * len(lines[0]) + "|\n" + "".join(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
