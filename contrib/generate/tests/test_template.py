"""Chat templates: what they may use, as with transformers."""

import time

import pytest
from jinja2 import TemplateError

from dovetail.errors import UsageError
from dovetail_generate.template import compiled

MESSAGES = [{"role": "user", "content": "<a> \u00e9"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}", "<a> \u00e9"),
        ("{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}", "userassistant"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "<a> \u00e9"}'),
        ("{{ messages[1] | tojson(indent=1) }}", '{\n "role": "assistant",\n "content": "b"\n}'),
        ("{% if tools is none %}\n  none\n{% endif %}\n", "  none\n"),
    ],
)
def test_text(template: str, want: str) -> None:
    assert compiled(template).render(messages=MESSAGES, tools=None) == want


def test_the_day() -> None:
    days = {time.strftime("%d %b %Y")}
    found = compiled("{{ strftime_now('%d %b %Y') }}").render()
    assert found in days | {time.strftime("%d %b %Y")}


def test_what_fails() -> None:
    with pytest.raises(UsageError, match="refuses the messages: no system"):
        compiled("{{ raise_exception('no system') }}").render()
    with pytest.raises(TemplateError):
        compiled("{{ messages.__class__.__mro__ }}").render(messages=MESSAGES)
