"""Runs a program that says `import onnxruntime`: `python -m dovetail_onnxruntime [-d DEVICE] app.py`, or with `-m module`."""

import argparse
import os
import runpy
import sys

from dovetail_onnxruntime.alias import activate
from dovetail_onnxruntime.providers import use_device


def main(arguments: list[str]) -> None:
    """Run the program as Python itself would: `sys.argv`, `sys.path` and `__main__` are its own."""
    parser = argparse.ArgumentParser(
        prog="python -m dovetail_onnxruntime",
        description="Run a program that says `import onnxruntime` on dovetail.",
        usage="%(prog)s [-d DEVICE] (app.py | -m module) [ARGUMENTS ...]",
    )
    parser.add_argument("-d", "--device", help="the device for every session, such as NUMPY or OPENCL; default: the provider's")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", help="a file, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    given = parser.parse_args(arguments)
    activate(children=True)
    if given.device is not None:
        use_device(given.device)
    sys.argv = [given.program, *given.arguments]
    if given.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(given.program))
        runpy.run_path(given.program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
