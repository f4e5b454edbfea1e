"""Rows a second of `dovetail serve` on the loopback device, against direct calls of the same model on the same device.

`python benchmarks/serving.py [-d ONEDNN] [--only resnet50] [--batch 8] [--callers 2] [--rounds 5] [--seconds 4] [--json]`

Callers are threads of one process: with a request of their own each (direct), or with tritonclient and binary data, by REST and
by gRPC. They take turns, `--rounds` times; the server is idle while direct calls run, and the other way round. `relative` is the
median over the rounds of the rows a second over those of the direct calls in the same round. Clients and server share the cores
of the machine, as they do not when clients are elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from _common import MODELS, Arrays, ModelSpec, Row, emit, median, parser

Infer = Callable[[], Any]

PATIENCE = 600.0
"""Seconds to wait for the server to be ready."""


@contextmanager
def served(spec: ModelSpec, device: str) -> Iterator[dict[str, str]]:
    """The addresses of a server in a process of its own that is ready."""
    command = [
        sys.executable,
        "-m",
        "dovetail",
        "serve",
        str(spec.path),
        "-d",
        device,
        "--port",
        "0",
        "--grpc-port",
        "0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            text = ""
            for line in process.stdout:
                text += line
                if line == "}\n":
                    break
            addresses = json.loads(text)
            _wait(f"{addresses['http']}/v2/health/ready")
            yield {"http": addresses["http"].removeprefix("http://"), "grpc": addresses["grpc"]}
        finally:
            process.terminate()


def _wait(address: str) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(address, timeout=PATIENCE):
            return
        time.sleep(0.1)
    raise TimeoutError(address)


def direct(spec: ModelSpec, device: str, inputs: Arrays) -> Callable[[], Infer]:
    """Makes callers of the model in this process."""
    import dovetail

    compiled = dovetail.Core().compile_model(str(spec.path), device)

    def caller() -> Infer:
        request = compiled.create_infer_request()
        return lambda: request.infer(inputs)

    return caller


def remote(protocol: str, address: str, spec: ModelSpec, inputs: Arrays) -> Callable[[], Infer]:
    """Makes callers of the server, each with a connection of its own."""
    from importlib import import_module

    from tritonclient.utils import np_to_triton_dtype

    module = import_module(f"tritonclient.{protocol}")

    def caller() -> Infer:
        client = module.InferenceServerClient(address)

        def infer() -> Any:
            tensors = []
            for name, array in inputs.items():
                tensors.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
                tensors[-1].set_data_from_numpy(array)
            return client.infer(spec.name, tensors)

        return infer

    return caller


def calls_a_second(make: Callable[[], Infer], callers: int, seconds: float) -> float:
    """Calls that end within `seconds`, all callers at once, after one call each; at least one more each."""
    together = threading.Barrier(callers)

    def work() -> tuple[int, float]:
        infer, count = make(), 0  # in the thread: Triton's HTTP client cannot be handed to another one
        infer()
        together.wait()
        start = time.perf_counter()
        while count == 0 or time.perf_counter() - start < seconds:
            infer()
            count += 1
        return count, time.perf_counter() - start

    with ThreadPoolExecutor(callers) as pool:
        done = [call.result() for call in [pool.submit(work) for _ in range(callers)]]
    return sum(count for count, _ in done) / max(elapsed for _, elapsed in done)


def measure(spec: ModelSpec, options: Any) -> list[Row]:
    """A row for direct calls, and one for each protocol."""
    inputs = spec.inputs(np.random.default_rng(0), options.batch)
    with served(spec, options.device) as addresses:
        makers = {"direct": direct(spec, options.device, inputs)}
        makers |= {protocol: remote(protocol, addresses[protocol], spec, inputs) for protocol in ("http", "grpc")}
        rates: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(options.rounds):
            for name, make in makers.items():
                rates[name].append(calls_a_second(make, options.callers, options.seconds) * options.batch)
    return [
        {
            "model": spec.name,
            "device": options.device,
            "batch": options.batch,
            "callers": options.callers,
            "calls": name,
            "rows a second": median(found),
            "relative": median([one / of for one, of in zip(found, rates["direct"], strict=True)]),
        }
        for name, found in rates.items()
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("-d", "--device", default="ONEDNN")
    arguments.add_argument("--only", choices=MODELS, default="resnet50")
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--callers", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4.0)
    options = arguments.parse_args()
    emit(options.json, measure(MODELS[options.only], options), {})


if __name__ == "__main__":
    main()
