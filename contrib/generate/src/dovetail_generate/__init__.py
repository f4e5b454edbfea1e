"""Text from language models: the command `dovetail generate`, and `TextGenerator` for programs."""

from typing import TYPE_CHECKING, Any

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

    from dovetail_generate.generator import Piece as Piece
    from dovetail_generate.generator import TextGenerator as TextGenerator
    from dovetail_generate.sampling import Sampling as Sampling

__all__ = ["Piece", "Sampling", "TextGenerator", "dovetail_api"]

dovetail_api = "1.0"


@hookimpl
def dovetail_add_commands(cli: "click.Group") -> None:
    # Here, because who looks at a plugin, as `dovetail plugins info` does, needs no command.
    from dovetail_generate.command import generate

    cli.add_command(generate)


def __getattr__(name: str) -> Any:
    """Loads the classes on first use: without them the package is loaded in no time."""
    if name in ("Piece", "TextGenerator"):
        from dovetail_generate import generator

        return getattr(generator, name)
    if name == "Sampling":
        from dovetail_generate.sampling import Sampling

        return Sampling
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
