"""Writes src/dovetail_frontend_onnx/vendor from the package onnx that is installed."""

import hashlib
import json
from importlib.metadata import distribution
from pathlib import Path

import onnx
from onnx import onnx_ml_pb2

HERE = Path(__file__).parent
FOLDER = HERE / "src" / "dovetail_frontend_onnx" / "vendor" / "onnx"


def main() -> None:
    """Write the files; `git diff` shows what a newer onnx changes."""
    content = onnx_ml_pb2.DESCRIPTOR.serialized_pb
    (FOLDER / "onnx-ml.binpb").write_bytes(content)
    (FOLDER / "newest-opset.txt").write_text(f"{onnx.defs.onnx_opset_version()}\n")
    for name in ("LICENSE", "NOTICE"):
        licence = distribution("onnx").read_text(f"licenses/{name}")
        assert licence, f"onnx {onnx.__version__} has no file {name} with its licence"
        (FOLDER / name).write_text(licence)
    (FOLDER.parent / "sbom.cdx.json").write_text(json.dumps(sbom(content), indent=2) + "\n")


def sbom(content: bytes) -> dict[str, object]:
    """The parts of the wheel from other projects, as CycloneDX."""
    purl = f"pkg:pypi/onnx@{onnx.__version__}"
    vendored = {
        "type": "library",
        "bom-ref": purl,
        "name": "onnx",
        "version": onnx.__version__,
        "description": "The protobuf descriptor of onnx-ml.proto, in dovetail_frontend_onnx/vendor/onnx/onnx-ml.binpb",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "externalReferences": [{"type": "vcs", "url": "https://github.com/onnx/onnx"}],
    }
    own = {"type": "library", "bom-ref": "dovetail-frontend-onnx", "name": "dovetail-frontend-onnx"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own, "purl": "pkg:pypi/dovetail-frontend-onnx"}},
        "components": [vendored],
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [purl]}],
    }


if __name__ == "__main__":
    main()
