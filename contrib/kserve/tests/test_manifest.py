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
        raise ValueError(f"{where} has no {unknown}")
    return model(**{names[k]: build(model.openapi_types[names[k]], v, f"{where}.{k}") for k, v in value.items()})

for document in yaml.safe_load_all(sys.stdin):
    kind = document["kind"]
    try:
        found = build(document["apiVersion"].rpartition("/")[2].capitalize() + kind, document, kind)
        print(type(found).__name__)
    except ValueError as error:
        print(error)
"""


def check(documents: str) -> list[str]:
    """For each document its class, or the field that the class lacks."""
    command = [sys.executable, "-c", CHECK]
    done = subprocess.run(command, input=documents, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def documents() -> str:
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_documents_fit_the_schema_and_misspelt_ones_do_not(documents: str) -> None:
    misspelt = documents.replace("failureThreshold:", "failureThresholds:")
    assert misspelt != documents
    runtime, service, wrong, _ = check(f"{documents}\n---\n{misspelt}")
    assert (runtime, service) == ("V1alpha1ServingRuntime", "V1beta1InferenceService")
    assert wrong == "ServingRuntime.spec.containers[0].startupProbe has no ['failureThresholds']"


def test_the_command_has_the_options_that_are_used(documents: str) -> None:
    from dovetail_kserve.command import serve

    options = {name for parameter in serve.params for name in parameter.opts}
    used = re.findall(r"--[a-z][a-z-]+", documents.partition("exec dovetail serve")[2])
    assert set(used) <= options
    assert len(used) > 3
