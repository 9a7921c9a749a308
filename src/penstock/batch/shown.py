"""Any body as one line of JSON, for people and for protocols that speak JSON.

A body that is JSON is itself, other text is a JSON string, and anything else is an object with
its bytes under `$base64`. Nothing in the line can move a terminal's cursor: what is not printable
is escaped, which JSON allows only where it means the same.
"""

from base64 import b64encode
from typing import Any, Final

import msgspec

BASE64_KEY: Final = "$base64"
_BMP_MAX: Final = 0xFFFF
_SPACE: Final = 0x20

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def json_of(body: bytes | None) -> bytes:
    """The body as JSON in one line; no body at all is `null`."""
    if body is None:
        return b"null"
    try:
        _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _json_of_other(body)
    if min(body) < _SPACE:  # Line ends and tabs: outside of strings, where JSON allows them.
        body = msgspec.json.format(body, indent=-1)
    return tame(body)


def _json_of_other(body: bytes) -> bytes:
    try:
        return tame(_encode(body.decode()))
    except UnicodeDecodeError:
        return _encode({BASE64_KEY: b64encode(body).decode()})


def value_of(body: bytes | None) -> Any:
    """The same as a value that JSON and MessagePack can both carry."""
    value = _decode(json_of(body))
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, ValueError, RecursionError):
        # A whole number of more than 64 bits: its text says what its nearest number would not.
        return (body or b"").decode()
    return value


def tame(line: bytes) -> bytes:
    """A line of JSON with every character that is not printable escaped."""
    text = line.decode()
    if text.isprintable():
        return line
    return "".join(mark if mark.isprintable() else _escaped(ord(mark)) for mark in text).encode()


def json_text(text: str) -> bytes:
    """Text as a JSON string in which everything is printable."""
    return tame(_encode(text))


def _escaped(code: int) -> str:
    if code <= _BMP_MAX:
        return f"\\u{code:04x}"
    code -= _BMP_MAX + 1
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
