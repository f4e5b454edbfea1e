"""YAML as items with places. Refuses what a configuration does not need: tags, anchors, aliases, several documents, depth."""

from collections.abc import Mapping
from typing import Any

import yaml

from dovetail.config import Item
from dovetail.errors import UsageError

__all__ = ["read_yaml"]

_SCALARS = ("str", "int", "float", "bool", "null")
_TAG = "tag:yaml.org,2002:"


def read_yaml(content: bytes, source: str, depth: int) -> Item:
    """The one document in `content`. An empty file is an item that holds None.

    Raises `UsageError` with file and line; `depth` is how deep lists and mappings may be nested.
    """
    text = _decoded(content, source)
    try:
        _check_events(text, source, depth)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _malformed(error, source) from None
    except yaml.YAMLError as error:
        # The reader's errors, about characters, have a position instead of a line.
        position = getattr(error, "position", 0)
        raise UsageError(f"{source}:{text.count(chr(10), 0, position) + 1}: not YAML: {_first_line(error)}") from None
    if node is None:
        return Item(None, f"{source}:1")
    return _item(node, yaml.SafeLoader(""), source)


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{source}:{line}: not UTF-8 text (byte 0x{content[error.start]:02x})", hint="save it as UTF-8"
        ) from None


def _check_events(text: str, source: str, limit: int) -> None:
    """The parser's events come one by one, so that neither nesting nor repetition costs memory or stack before it is refused."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        place = f"{source}:{event.start_mark.line + 1 if event.start_mark else 1}"
        if depth > limit:
            raise UsageError(f"{place}: nested more than {limit} deep")
        if getattr(event, "anchor", None) is not None:
            raise UsageError(
                f"{place}: anchors and aliases (&, *) are not accepted", hint="write the value out, or put it in quotes"
            )


def _malformed(error: yaml.MarkedYAMLError, source: str) -> UsageError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    problem = error.problem or error.context or "malformed"
    if "'\\t'" in problem:
        return UsageError(f"{source}:{line}: a tab where YAML wants spaces", hint="indent with spaces")
    if "single document" in (error.context or ""):
        return UsageError(f"{source}:{line}: a second document begins", hint="take out the line '---'")
    return UsageError(f"{source}:{line}: not YAML: {problem}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["malformed"])[0]


def _item(node: yaml.Node, loader: yaml.SafeLoader, source: str) -> Item:
    place = f"{source}:{node.start_mark.line + 1}"
    tag = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.MappingNode) and tag == "map":
        return Item(tuple((_item(k, loader, source), _item(v, loader, source)) for k, v in node.value), place)
    if isinstance(node, yaml.SequenceNode) and tag == "seq":
        return Item([_item(v, loader, source) for v in node.value], place)
    if not isinstance(node, yaml.ScalarNode) or tag not in _SCALARS:
        what = _TAGS_IN_WORDS.get(tag, f"the tag {node.tag!r}")
        raise UsageError(f"{place}: {what} is not accepted", hint="put the value in quotes if it is text")
    return Item(_scalar(node, loader, place), place)


_TAGS_IN_WORDS: Mapping[str, str] = {"timestamp": "a date", "merge": "the merge key <<", "binary": "binary data"}


def _scalar(node: yaml.ScalarNode, loader: yaml.SafeLoader, place: str) -> Any:
    if node.tag in (f"{_TAG}int", f"{_TAG}float") and ":" in node.value:
        raise UsageError(f"{place}: {node.value[:40]!r} is a number to base 60 in YAML", hint="put it in quotes if it is text")
    try:
        return loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{place}: {node.value[:40]!r} is no value: {error}", hint="put it in quotes if it is text") from None
