"""Models over Ray datasets: `Predictor` for `Dataset.map_batches`, and `map`."""

from collections.abc import Mapping, Sequence
from typing import Any

import ray
import ray.data

from dovetail.errors import InferError, UsageError
from dovetail_ray.columns import Array
from dovetail_ray.prediction import Prediction, RowModel
from dovetail_ray.shipping import Model, Parcel, check_nodes, compiled_for, recipe_of, runtime_env

__all__ = ["Predictor", "map_dataset"]


class Predictor:
    """A model as a callable class for `Dataset.map_batches`: a batch of columns in, the same rows with the outputs out.

    `model` is a path, a `Model`, a compiled model, a recipe, or what `Parcel.of` made of one. The worker compiles it when it is
    made. `keep` names the columns of the batch that stay, all by default. Each row has `error_code` and `error_message`, None
    where there is a result; the outputs of other rows are NaN, or 0. With `errors="raise"` the first one is raised. `num_cpus`
    and `num_gpus` are those that the actor was given.
    """

    def __init__(
        self,
        model: Model | Parcel,
        device: str | None = None,
        properties: Mapping[str, Any] | None = None,
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        keep: Sequence[str] | None = None,
        batch_size: int = 256,
        refuse_nan: bool = False,
        errors: str = "column",
        num_cpus: float = 1,
        num_gpus: float = 0,
    ) -> None:
        if errors not in ("column", "raise"):
            raise UsageError(f"errors={errors!r}; accepted: 'column', 'raise'")
        recipe = model.unpacked() if isinstance(model, Parcel) else recipe_of(model, device, properties)
        self._model = RowModel(compiled_for(recipe, num_cpus, num_gpus), batch_size, columns, refuse_nan)
        self._keep = keep
        self._raises = errors == "raise"

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Predict for a batch. Raises `UsageError` for missing columns, and with `errors="raise"` the first error of a row."""
        rows = len(next(iter(batch.values()))) if batch else 0
        found = self._model.predict(batch, rows)
        if self._raises:
            raise_first(found)
        kept = {name: batch[name] for name in (batch if self._keep is None else self._keep)}
        added = {**found.outputs, **found.error_columns(rows)}
        if taken := kept.keys() & added.keys():
            raise UsageError(f"a column is called {min(taken)!r}, as what is added", hint="leave it out: keep=[...]")
        return {**kept, **added}


def raise_first(found: Prediction, first: int = 0) -> None:
    """Raise `InferError` for the first row that has an error; `first` is the number of row 0."""
    if found.errors:
        row = min(found.errors)
        error = found.errors[row]
        raise InferError(f"row {first + row}: {error.message} ({error.code})")


def map_dataset(
    dataset: "ray.data.Dataset",
    model: Model,
    device: str | None = None,
    properties: Mapping[str, Any] | None = None,
    *,
    workers: int = 1,
    batch_size: int = 256,
    num_cpus: float = 1,
    num_gpus: float = 0,
    install: bool = False,
    env: Mapping[str, Any] | None = None,
    **others: Any,
) -> "ray.data.Dataset":
    """The dataset with a model's outputs for each row, computed by `workers` actors that compile it once each.

    `others` are those of `Predictor`. The model is compiled here first, and every node is checked for what that required; with
    `install` Ray installs it there. `env` has entries for Ray's `runtime_env`. The result is lazy, as all datasets are. Raises
    as `Core.compile_model`, and `PluginIncompatible` naming the node and what it lacks.
    """
    recipe = recipe_of(model, device, properties)
    env = runtime_env(recipe, install, env)
    check_nodes(recipe, env)
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=(Parcel.of(recipe),),
        fn_constructor_kwargs={"batch_size": batch_size, "num_cpus": num_cpus, "num_gpus": num_gpus, **others},
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        runtime_env=env or None,
    )
