"""Compares greedy tokens with those of the reference in float64: `python compare_float64.py NUMPY ONEDNN [--model FILE]`.

The reference shares no code with dovetail; it takes some minutes. The exit code is 1 if a token differs.
"""

import argparse
import itertools
import runpy
import sys
from pathlib import Path
from typing import Any

from chat import weights

from dovetail_generate import TextGenerator

REFERENCE = Path(__file__).parents[2] / "plugins" / "frontend_gguf" / "tests" / "reference.py"

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Why is the sky blue?",
    "List three uses of a paper clip.",
    "Tell me a story about a fox, please.",
)


def references(model: Path, prompts: list[list[int]], count: int) -> list[list[int]]:
    """The tokens that follow each prompt, the most likely one each time."""
    reference: Any = runpy.run_path(str(REFERENCE))["Reference"](model)
    return [list(itertools.islice(reference.greedy(prompt), count)) for prompt in prompts]


def found(model: Path, device: str, prompts: list[list[int]], count: int) -> list[list[int]]:
    """The same by dovetail."""
    generator = TextGenerator(model, device, room=512)
    return [[piece.token for piece in generator.generate([prompt], limit=count, ends=False)] for prompt in prompts]


def main() -> None:
    """Print for each device and question how many tokens agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="+")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    model = given.model or weights()
    tokens = TextGenerator(model, "NUMPY").tokens
    prompts = [tokens.encode(tokens.chat([{"role": "user", "content": question}])) for question in QUESTIONS]
    want = references(model, prompts, given.tokens)
    differs = False
    for device in given.devices:
        for question, right, mine in zip(QUESTIONS, want, found(model, device, prompts, given.tokens), strict=True):
            same = next((i for i, (a, b) in enumerate(zip(right, mine, strict=True)) if a != b), len(right))
            differs |= same < len(right)
            print(f"{device:10} {same:3} of {len(right)} tokens agree: {question}")
    sys.exit(int(differs))


if __name__ == "__main__":
    main()
