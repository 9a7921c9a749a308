"""What is wrong with a value, in words of ours: msgspec speaks of Python's types and of paths."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

import msgspec

TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
COMPARISONS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
UNITS: Final = {"str": "characters", "array": "entries", "object": "fields"}
CHOICE: Final = re.compile(r"\^\(([\w|-]+)\)\$")
"""A pattern that is a list of words."""


def in_words(error: msgspec.ValidationError, kind: Any = None) -> str:
    """`max must be a whole number, not text`; an unknown field is told with the nearest known."""
    text, _, path = str(error).partition(" - at `")
    place = path.removesuffix("`").removeprefix("$").removeprefix(".") or "it"
    for pattern, say in _FORMS:
        found = pattern.fullmatch(text)
        if found is not None:
            return say(place, *found.groups(), _fields(kind) if place == "it" else ())
    return f"{place}: {text}"


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(getattr(kind, "__struct_fields__", ()))


def _types(text: str) -> str:
    return " or ".join(TYPES.get(each, each) for each in text.split(" | "))


def _wrong_type(place: str, wanted: str, given: str, _known: Any) -> str:
    return f"{place} must be {_types(wanted)}, not {_types(given)}"


def _out_of_range(place: str, kind: str, sign: str, limit: str, _known: Any) -> str:
    number = limit.removesuffix(".0")
    return f"{place} must be {_types(kind)} of {COMPARISONS[sign]} {number}"


def _wrong_length(place: str, kind: str, sign: str, limit: str, _known: Any) -> str:
    return f"{place} must have {COMPARISONS[sign]} {limit} {UNITS.get(kind, 'bytes')}"


def _no_match(place: str, pattern: str, _known: Any) -> str:
    words = CHOICE.fullmatch(pattern)
    if words is not None:
        return f"{place} must be {' or '.join(words[1].split('|'))}"
    return f"{place} must match {pattern}"


def _no_choice(place: str, value: str, _known: Any) -> str:
    return f"{place} cannot be {value}"


def _unknown(place: str, name: str, known: tuple[str, ...]) -> str:
    inside = "" if place == "it" else f" in {place}"
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    return f"there is no field {name[:80]}{inside}" + (f"; {hint}" if known else "")


def _missing(place: str, name: str, _known: Any) -> str:
    inside = "" if place == "it" else f" in {place}"
    return f"the field {name}{inside} is missing"


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[..., str]], ...]] = (
    (re.compile(r"Expected `([^`]+)`, got `([^`]+)`"), _wrong_type),
    (re.compile(r"Expected `([^`]+)` (>=|<=|>|<) (\S+)"), _out_of_range),
    (re.compile(r"Expected `([^`]+)` of length (>=|<=) (\d+)"), _wrong_length),
    (re.compile(r"Expected `str` matching regex '(.*)'"), _no_match),
    (re.compile(r"Invalid enum value (.+)", re.DOTALL), _no_choice),
    (re.compile(r"Object contains unknown field `(.*)`", re.DOTALL), _unknown),
    (re.compile(r"Object missing required field `(.*)`"), _missing),
)
