"""Answers queries with the sentences that mean the most alike.

python search.py "how do plants make energy?" "something sweet to bake" -d ONEDNN
"""

import argparse
import time
from pathlib import Path

import numpy as np
from minilm import Size, Tokenizer, build, embed, model_folder, read_safetensors

import dovetail

SENTENCES = Path(__file__).with_name("sentences.txt")
QUERIES = ("how do plants turn light into food?", "my computer forgot the file", "a dish to warm up with in winter")


def main() -> None:
    """Embed the sentences, then each query; print the best by cosine similarity."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("queries", nargs="*", default=QUERIES)
    parser.add_argument("-d", "--device", default="AUTO")
    parser.add_argument("--model", type=Path, help="a folder with model.safetensors, config.json and vocab.txt")
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="one a line")
    parser.add_argument("--top", type=int, default=3)
    given = parser.parse_args()

    folder = given.model or model_folder()
    tokenizer = Tokenizer.read(folder)
    model = build(read_safetensors(folder / "model.safetensors"), Size.read(folder))
    compiled = dovetail.Core().compile_model(model, given.device)
    sentences = [line for line in given.sentences.read_text(encoding="utf-8").splitlines() if line.strip()]
    started = time.perf_counter()
    known = embed(compiled, tokenizer, sentences)
    print(f"{len(sentences)} sentences in {time.perf_counter() - started:.2f} s on {compiled.device}")
    for query, vector in zip(given.queries, embed(compiled, tokenizer, given.queries), strict=True):
        likeness = known @ vector  # the vectors have length 1, so this is the cosine
        print(f"\n{query}")
        for i in np.argsort(-likeness)[: given.top]:
            print(f"  {likeness[i]:.3f}  {sentences[i]}")


if __name__ == "__main__":
    main()
