"""The documents for Kubernetes in the how-to, against the classes of the clients of KServe and Kubernetes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "serve_models.md"

# In a process of its own: kserve and tritonclient define messages of the same names.
CHECK = """
import re, sys
import kserve.models, kubernetes.client, yaml

def build(kind, value, where):
    if inner := re.fullmatch(r"[Ll]ist\\[(.+)\\]", kind):
        return [build(inner[1], one, f"{where}[{i}]") for i, one in enumerate(value)]
    model = getattr(kserve.models, kind, None) or getattr(kubernetes.client, kind, None)
    if model is None:
        return value
    names = {field: name for name, field in model.attribute_map.items()}
    if unknown := sorted(set(value) - set(names)):
        sys.exit(f"{where} has no {unknown}")
    return model(**{names[k]: build(model.openapi_types[names[k]], v, f"{where}.{k}") for k, v in value.items()})

for document in yaml.safe_load_all(sys.stdin):
    kind = document["kind"]
    print(type(build(document["apiVersion"].rpartition("/")[2].capitalize() + kind, document, kind)).__name__)
"""


def check(documents: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", CHECK], input=documents, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def documents() -> str:
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_documents_fit_the_schema(documents: str) -> None:
    done = check(documents)
    assert done.stdout.split() == ["V1alpha1ServingRuntime", "V1beta1InferenceService"], done.stderr


def test_a_field_that_is_misspelt_is_found(documents: str) -> None:
    done = check(documents.replace("failureThreshold:", "failureThresholds:"))
    assert done.returncode == 1
    assert "ServingRuntime.spec.containers[0].startupProbe has no ['failureThresholds']" in done.stderr


def test_the_command_has_the_options_that_are_used(documents: str) -> None:
    from dovetail_kserve.command import serve

    options = {name for parameter in serve.params for name in parameter.opts}
    used = re.findall(r"(--[a-z-]+)", documents.partition("exec dovetail serve")[2])
    assert set(used) <= options
    assert len(used) > 3
