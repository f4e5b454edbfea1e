"""Guess the format of a file that is not an ONNX model. Looks at the first bytes only."""

__all__ = ["HEAD", "foreign", "why_no_protobuf"]

_SIGNATURES = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (PyTorch checkpoints and NumPy .npz files are ZIP archives too)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\x89HDF", "an HDF5 file, such as Keras writes"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"\x80\x02", "a Python pickle, such as PyTorch writes"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x7fELF", "a program or shared library"),
    (b"MZ\x90", "a Windows program"),
    (b"version https://git-lfs", "a Git-LFS pointer, not the file itself (run: git lfs pull)"),
)
HEAD = 512
"""Bytes at the begin of a file that are looked at."""
_WIRE_LENGTH_DELIMITED = 2


def foreign(content: bytes, size: int) -> str | None:
    """The format of a file of `size` bytes that begins with `content`, or None when it may be protobuf.

    A model cannot be taken for text: among its first bytes are tags and small numbers, which are control characters.
    """
    head = content[:HEAD]
    for signature, what in _SIGNATURES:
        if head.startswith(signature):
            return what
    if head[4:8] == b"ORTM":
        return "a model in the format of ONNX Runtime (.ort; load the .onnx file from which it was converted)"
    if head[4:8] == b"TFL3":
        return "a TensorFlow Lite model"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < size:
        return "a safetensors file, which has weights but no graph"
    return _text(head)


def _text(head: bytes) -> str | None:
    if any(byte < 32 and byte not in b"\t\n\r\f" for byte in head):
        return None
    try:
        start = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8").lstrip().lower()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not merely a character cut off at the end of the head
            return None
        start = head[: error.start].decode("utf-8").lstrip().lower()
    if start.startswith(("<!doctype html", "<html")):
        return "an HTML page (did the download answer with an error page?)"
    if start.startswith("<"):
        return "an XML or HTML file"
    return "JSON" if start.startswith(("{", "[")) else "text"


def why_no_protobuf(content: bytes) -> str:
    """Why protobuf refused the content: cut off, or damaged otherwise. Reads the fields of the outermost message only."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        kind = tag & 7
        if kind == 0:
            _, position = _varint(content, position)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        elif kind == _WIRE_LENGTH_DELIMITED:
            length, position = _varint(content, position)
            position += length
        else:
            return "the file is damaged, or no ONNX model"
    if position > len(content):
        return f"the file is cut off: it should have {position} bytes at least and has {len(content)}"
    return "the file is damaged, or its graphs are nested more than about 30 deep, which is protobuf's limit"


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(content):
            break
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return value, len(content) + 1
