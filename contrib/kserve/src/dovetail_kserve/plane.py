"""The common part of REST and gRPC: readiness and metadata of the server and of each version."""

from typing import Any

from kserve import ModelRepository
from kserve.protocol.dataplane import DataPlane

import dovetail
from dovetail_kserve.errors import RequestRefused
from dovetail_kserve.model import DovetailModel
from dovetail_kserve.versions import LoadedVersion

__all__ = ["Plane", "Repository"]


class Repository(ModelRepository):  # type: ignore[misc]  # kserve has no type information
    """The models of the server, which are those of the command line."""

    def unload(self, name: str) -> None:
        """Refuse."""
        raise RequestRefused(f"the model {name!r:.80} cannot be unloaded: the command line names it", status=405)

    def named(self, name: str) -> DovetailModel:
        """A model. Raises `RequestRefused`."""
        found = self.get_model(name)
        if not isinstance(found, DovetailModel):
            known = ", ".join(sorted(self.get_models()))
            raise RequestRefused(f"unknown model {name!r:.80}; known: {known}", status=404)
        return found

    @property
    def all(self) -> dict[str, DovetailModel]:
        """The models by name."""
        return dict(self.get_models())


class Plane(DataPlane):  # type: ignore[misc]  # kserve has no type information
    """kserve's data plane with versions, statistics, and readiness that ends when the server drains."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository)
        self.repository = repository
        self.draining = False

    def metadata(self) -> dict[str, Any]:
        """Name and version of the server, and the extensions of the protocol that it has."""
        extensions = ["binary_tensor_data", "statistics", "model_repository_extension"]
        return {"name": "dovetail", "version": dovetail.__version__, "extensions": extensions}

    async def ready(self) -> bool:
        """True from when every model is loaded until the server is asked to stop."""
        return not self.draining and all(model.versions.loaded for model in self.repository.all.values())

    async def model_ready(self, model_name: str, disable_predictor_health_check: bool = False, version: str = "") -> bool:
        """True once the model, or this version, is compiled and planned. Raises `RequestRefused` for unknown ones."""
        model = self.repository.named(model_name)
        return bool(model.versions.loaded) and self.version(model_name, version) is not None

    def version(self, model_name: str, version: str = "") -> LoadedVersion:
        """A version of a model. Raises `RequestRefused`."""
        return self.repository.named(model_name).versions.get(version)

    async def get_model(self, name: str) -> DovetailModel:
        """A model. Raises `RequestRefused`."""
        return self.repository.named(name)

    async def model_metadata(self, model_name: str, version: str = "") -> dict[str, Any]:
        """Versions, inputs and outputs of a model. Raises `RequestRefused`."""
        found = self.version(model_name, version)
        return {
            "name": model_name,
            "versions": list(self.repository.named(model_name).versions.loaded),
            "platform": f"dovetail_{found.compiled.model.format or 'model'}",
            "inputs": list(found.inputs.values()),
            "outputs": list(found.outputs.values()),
        }

    def statistics(self, model_name: str = "", version: str = "") -> dict[str, Any]:
        """The statistics of all models, of one, or of one version. Raises `RequestRefused`."""
        if version:
            self.version(model_name, version)
        models = {model_name: self.repository.named(model_name)} if model_name else self.repository.all
        return {
            "model_stats": [
                statistics.describe(name, number)
                for name, model in models.items()
                for number, statistics in tuple(model.versions.statistics.items())
                if version in ("", number)
            ]
        }
