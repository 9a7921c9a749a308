"""Errors on the wire: the stable code, the text and the details; the same class on both sides."""

from typing import Any, Final

import msgspec

from penstock.vocabulary.errors import AckRefused, PenstockError, ProtocolError, catalogue

TEXT_CHARACTERS_MAX: Final = 8_000
"""A longer text is cut; the details have everything."""


class ErrorBody(msgspec.Struct, array_like=True):
    """What a frame says about an error."""

    code: str
    text: str
    details: dict[str, Any]


_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_decoder: Final = msgspec.msgpack.Decoder(ErrorBody)


def encode_error(error: BaseException) -> bytes:
    """An error as a payload. What is not one of ours says only that the server failed."""
    if not isinstance(error, PenstockError):
        text = f"the server failed ({type(error).__name__}); its log has the reason"
        return _encode(ErrorBody(PenstockError.code, text, {}))
    return _encode(ErrorBody(error.code, error.text[:TEXT_CHARACTERS_MAX], error.details))


def decode_error(payload: Any) -> PenstockError:
    """The error of a payload, as the class it had. Raises ProtocolError when it is none.

    A code that this version does not know becomes a plain PenstockError.
    """
    try:
        body = _decoder.decode(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an error from the server cannot be decoded: {error}") from error
    kind = catalogue().get(body.code)
    if kind is None:
        return PenstockError(f"{body.text} ({body.code})", **body.details)
    details = body.details
    if kind is AckRefused and isinstance(details.get("refused"), list):
        details["refused"] = [tuple(row) for row in details["refused"]]
    return kind(body.text, **details)
