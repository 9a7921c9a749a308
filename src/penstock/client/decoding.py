"""Bodies into values: text, JSON, typed structures. What does not fit is named by its path."""

from functools import lru_cache
from typing import Any

import msgspec
import msgspec.inspect

from penstock.vocabulary.errors import BodyDoesNotFit, InvalidArgument

PATHS_MAX = 5
"""Wrong fields named in one error."""


def decode(body: bytes | None, kind: Any) -> Any:
    """A body as this type. Raises BodyDoesNotFit, naming the field that is wrong."""
    if body is None:
        raise BodyDoesNotFit(f"the message has no body to read as {name_of(kind)}")
    if kind is bytes:
        return body
    if kind is str:
        return _text(body)
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return _pydantic(body, kind, validate)
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise BodyDoesNotFit(f"the body does not fit {name_of(kind)}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyDoesNotFit(f"the body is not JSON: {error}") from error


def check_kind(kind: Any) -> None:
    """Raises InvalidArgument when bodies cannot be decoded into this type."""
    if kind in {bytes, str} or hasattr(kind, "model_validate_json"):
        return
    _decoder(kind)
    if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
        raise InvalidArgument(
            f"bodies cannot be read as {name_of(kind)}: use a msgspec Struct, a dataclass, a "
            "pydantic model, dict, list, str or bytes"
        )


def name_of(kind: Any) -> str:
    """A type as people write it."""
    return str(getattr(kind, "__name__", kind))


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    try:
        return msgspec.json.Decoder(kind)
    except TypeError as error:
        raise InvalidArgument(f"bodies cannot be read as {name_of(kind)}: {error}") from error


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BodyDoesNotFit(f"the body is not UTF-8 text: {error}") from error


def _pydantic(body: bytes, kind: Any, validate: Any) -> Any:
    # pydantic is never imported here; its ValidationError is a ValueError with a list of errors.
    try:
        return validate(body)
    except ValueError as error:
        listed = getattr(error, "errors", None)
        found = listed() if callable(listed) else []
        paths = [
            f"{each.get('msg', '')} - at `{_path(each.get('loc', ()))}`"
            for each in found[:PATHS_MAX]
        ]
        text = "; ".join(paths) or str(error)
        raise BodyDoesNotFit(f"the body does not fit {name_of(kind)}: {text}") from error


def _path(places: Any) -> str:
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in places)
    return "$" + "".join(parts)
