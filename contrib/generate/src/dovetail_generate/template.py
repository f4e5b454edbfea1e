"""Chat templates, with what transformers defines for them: https://huggingface.co/docs/transformers/chat_templating."""

import json
import time
from typing import Any

from jinja2 import Template, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dovetail.errors import UsageError

__all__ = ["compiled"]


class _Generation(Extension):
    """`{% generation %}`, around what the model has answered: its content."""

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node | list[nodes.Node]:
        """The statements up to `{% endgeneration %}`."""
        next(parser.stream)
        found: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return found


def compiled(template: str) -> Template:
    """The template, in jinja2's sandbox."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.globals |= {"raise_exception": _refuse, "strftime_now": time.strftime}
    environment.filters["tojson"] = _json
    return environment.from_string(template)


def _refuse(message: str) -> None:
    raise UsageError(f"the model's chat template refuses the messages: {message}")


def _json(value: Any, **options: Any) -> str:
    """As JSON; jinja2's own filter writes it for HTML."""
    return json.dumps(value, **{"ensure_ascii": False, **options})
