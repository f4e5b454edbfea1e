"""`dovetail generate`: a language model continues prompts, token by token."""

import sys
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import FiniteRange, command, device_option, print_json, print_text, remark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail_generate.generator import Piece, TextGenerator

__all__ = ["generate"]

_INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""

_GUESSED = 4
"""Tokens that a draft model guesses."""


@command('dovetail generate model.gguf --prompt "What is an ocean?"')
@click.argument("model")
@device_option
@click.option("-p", "--prompt", "prompts", multiple=True, required=True, help="Text to answer, - for standard input. Repeatable.")
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the model's chat template.")
@click.option("--system", help="A system message before the prompt.")
@click.option("--tokens", "limit", type=click.IntRange(min=1), default=256, show_default=True, help="The most tokens to write.")
@click.option("--temperature", type=FiniteRange(min=0), default=0.0, show_default=True, help="0: the most likely token.")
@click.option("--top-k", type=click.IntRange(min=0), default=0, show_default=True, help="Choose among so many; 0: all.")
@click.option("--top-p", type=FiniteRange(0, 1, min_open=True), default=1.0, show_default=True, help="Choose among this share.")
@click.option(
    "--min-p",
    type=FiniteRange(0, 1),
    default=0.0,
    show_default=True,
    help="Least share of the likeliest token's probability.",
)
@click.option(
    "--repetition-penalty",
    type=FiniteRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Divide logits of tokens in the text; 1: as they are.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed chooses the same tokens.")
@click.option("--stop", multiple=True, metavar="WORD", help="End the text before this word. Repeatable.")
@click.option(
    "--lookup", type=click.IntRange(0, 64), default=0, show_default=True, help="Guess so many tokens from earlier text."
)
@click.option(
    "--draft", metavar="MODEL", help="A smaller model that guesses the tokens, by default 4. It has the same tokenizer."
)
@click.option("--room", type=click.IntRange(min=2), default=2048, show_default=True, help="Tokens of prompt and text together.")
@click.option("--tokenizer", type=click.Path(exists=True, dir_okay=False), help="A tokenizer.json, where the model has none.")
def generate(
    model: str,
    device: str,
    prompts: tuple[str, ...],
    raw: bool,
    system: str | None,
    limit: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    seed: int,
    stop: tuple[str, ...],
    lookup: int,
    draft: str | None,
    room: int,
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Write what a language model answers.

    The text appears token by token; several prompts run together and are printed when all have ended. Models are .gguf files, or
    .onnx files of decoders with caches, or .xml files (OpenVINO's IR) of decoders with states. Ctrl-C ends the text; the exit
    code is then 130.

    \b
    JSON: {"model", "device", "interrupted": bool, "prompt_tokens": int,
           "tokens": int, "tokens_per_second": number or null,
           "seconds": {"load", "first_token", "rest"}, "plans": int,
           "texts": [{"prompt", "text", "tokens": [], "ended"}]}
    Tokens a second are those after the first one of each text. `ended` is
    "token", "stop", "limit", "room", or "" for a text that was interrupted.
    """
    from dovetail_generate.generator import TextGenerator
    from dovetail_generate.sampling import Sampling

    asked = [sys.stdin.read() if prompt == "-" else prompt for prompt in prompts]
    guessing = None if draft is None else TextGenerator(draft, device, tokenizer=tokenizer, room=room)
    lookup = lookup or (0 if guessing is None else _GUESSED)
    generator = TextGenerator(model, device, tokenizer=tokenizer, room=room, draft=guessing)
    texts = [_conversation(generator, prompt, system, raw) for prompt in asked]
    sampling = Sampling(temperature, top_k, top_p, seed, min_p, repetition_penalty)
    found: list[dict[str, Any]] = [{"prompt": prompt, "text": "", "tokens": [], "ended": ""} for prompt in asked]
    streamed = len(asked) == 1 and not as_json
    pieces = generator.generate(texts, limit=limit, sampling=sampling, stop=stop, lookup=lookup)
    interrupted = _collect(pieces, found, streamed)
    described = _describe(generator, model, texts, found, interrupted)
    if as_json:
        print_json(described)
    else:
        _print(described, streamed)
    generator.close()
    if guessing is not None:
        guessing.close()
    if interrupted:
        click.get_current_context().exit(_INTERRUPTED)


def _collect(pieces: "Iterable[Piece]", found: list[dict[str, Any]], streamed: bool) -> bool:
    """Add pieces to their texts as they come, and print them if they are `streamed`. Returns whether Ctrl-C ended them."""
    try:
        for piece in pieces:
            one = found[piece.index]
            one["text"] += piece.text
            one["tokens"].append(piece.token)
            one["ended"] = piece.ended
            if streamed:
                click.echo(piece.text, nl=False)
    except KeyboardInterrupt:
        return True
    return False


def _conversation(generator: "TextGenerator", prompt: str, system: str | None, raw: bool) -> str:
    if raw or (generator.tokens.template is None and system is None):
        return prompt
    first = [] if system is None else [{"role": "system", "content": system}]
    return generator.tokens.chat([*first, {"role": "user", "content": prompt}])


def _describe(
    generator: "TextGenerator", model: str, texts: list[str], found: list[dict[str, Any]], interrupted: bool
) -> dict[str, Any]:
    tokens = sum(len(one["tokens"]) for one in found)
    later, rest = sum(max(0, len(one["tokens"]) - 1) for one in found), generator.seconds.get("rest", 0.0)
    return {
        "model": model,
        "device": generator.device,
        "interrupted": interrupted,
        "prompt_tokens": sum(len(generator.tokens.encode(text)) for text in texts),
        "tokens": tokens,
        "tokens_per_second": later / rest if rest and later else None,
        "seconds": generator.seconds,
        "plans": generator.plans,
        "texts": found,
    }


def _print(described: dict[str, Any], streamed: bool) -> None:
    if streamed:
        click.echo()
    else:
        for one in described["texts"]:
            print_text(f"{one['prompt']}\n{one['text']}\n")
    speed = described["tokens_per_second"]
    after = "" if speed is None else f", then {speed:.1f} tokens a second"
    first = described["seconds"].get("first_token")
    waited = "" if not first else f"; the first token after {first:.2f} s{after}"
    ended = " (interrupted)" if described["interrupted"] else ""
    remark(f"{described['tokens']} tokens after {described['prompt_tokens']} on {described['device']}{waited}{ended}.")
