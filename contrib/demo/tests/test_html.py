"""HTML building blocks: escaping and the PNG writer."""

import base64
import re
import struct
import zlib

import numpy as np

from dovetail_demo.html import Html, element, join, picture, table, text


def test_text_is_escaped_once() -> None:
    assert text("<b> & \"x\" '\x1b'") == "&lt;b&gt; &amp; &quot;x&quot; &#x27;\\x1b&#x27;"
    assert text(text("<")) == "&lt;"


def test_elements_escape_content_and_attributes() -> None:
    made = element("p", "a<b", element("b", 1), class_='x"y', title=None, aria_label="l")
    assert made == '<p class="x&quot;y" aria-label="l">a&lt;b<b>1</b></p>'
    assert isinstance(made, Html)


def test_tables_mark_columns_of_numbers() -> None:
    made = table(("name", ">size"), [("<x>", 3)])
    assert '<th scope="col">name</th><th class="number" scope="col">size</th>' in made
    assert '<tr><td>&lt;x&gt;</td><td class="number">3</td></tr>' in made


def test_join_keeps_html() -> None:
    assert element("p", join([Html("<br>"), text("&")], "")) == "<p><br>&amp;</p>"


def test_picture_is_a_png_with_these_pixels() -> None:
    pixels = np.array([[0, 16, 8], [4, 0, 16]], np.uint8)
    made = picture(pixels, 16, 'a "4"')
    match = re.fullmatch(r'<img class="digit" src="data:image/png;base64,([^"]+)" alt="a &quot;4&quot;">', made)
    assert match is not None
    chunks = dict(_chunks(base64.b64decode(match[1], validate=True)))
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (3, 2, 8, 0, 0, 0, 0)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(2, 4)
    np.testing.assert_array_equal(lines, [[0, 255, 0, 128], [0, 191, 255, 0]])


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    found, position = [], 8
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        kind, body = data[position + 4 : position + 8], data[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, position + 8 + length)
        assert checksum == zlib.crc32(kind + body)
        found.append((kind, body))
        position += 12 + length
    assert [kind for kind, _ in found] == [b"IHDR", b"IDAT", b"IEND"]
    return found
