"""The strict judge of one body: its values, or every reason why it is refused.

Slow and plain. The fast parser asks it about every body it is not sure of, and tests ask it about
all. A body must also decode with msgspec, strictly and with unknown keys forbidden.
"""

import json
import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

import msgspec

from penstock.pipeline.datasets import moments
from penstock.pipeline.datasets.shape import (
    LIST_COUNT_MAX,
    WHOLE_MAX,
    Bounds,
    Field,
    Group,
    Number,
    Numbers,
    Shape,
    Text,
    Time,
    Whole,
    Wholes,
)

VALUE_CHARACTERS_MAX: Final = 200
"""How much of a wrong value, or of a key that should not be there, a reason shows."""
REASON_COUNT_MAX: Final = 100
"""Reasons told about one body; a body with more is wrong beyond repair."""
_HEX: Final = re.compile(r"[0-9A-Fa-f]*", re.ASCII)
Values = dict[str, Any]


class Reason(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, which rule, and the value found there."""

    path: str
    rule: str
    value: str = ""


class Pairs(list[tuple[str, Any]]):
    """An object with its keys in order, repeated ones too."""


class Judge:
    """Judges bodies of one shape."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder(_struct(shape.body, "Body"))

    def judge(self, body: bytes | None, *, ranges: bool = True) -> Values | list[Reason]:
        """The value of each path, or every reason. `ranges=False` leaves range rules out."""
        if body is None:
            return [Reason("", "body.missing")]
        try:
            tree = json.loads(body.decode(), object_pairs_hook=Pairs, parse_constant=_refuse)
        except UnicodeDecodeError as error:
            return [Reason("", "json", f"not UTF-8: {error.reason}")]
        except RecursionError:
            return [Reason("", "json", "nested too deeply")]
        except ValueError as error:
            return [Reason("", "json", short(str(error)))]
        walk = _Walk(ranges=ranges)
        walk.group("", self._shape.body, tree)
        for paths in self._shape.equal_lengths:
            walk.equal(paths)
        return walk.reasons[:REASON_COUNT_MAX] or self._decoded(body) or walk.values

    def _decoded(self, body: bytes) -> list[Reason]:
        try:
            self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return [Reason("", "json", short(str(error)))]
        return []


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


class _Walk:
    """One body against its shape."""

    def __init__(self, *, ranges: bool) -> None:
        self.values: Values = {}
        self.reasons: list[Reason] = []
        self._ranges = ranges

    def group(self, path: str, group: Group, tree: Any) -> None:
        if not isinstance(tree, Pairs):
            self._wrong(path, "type.object", tree)
            return
        found: dict[str, Any] = {}
        prefix = f"{path}." if path else ""
        for name, value in tree:
            if name in found:
                self._wrong(prefix + short(name), "key.duplicate", value)
            elif name not in group.fields:
                self._wrong(prefix + short(name), "key.unknown", value)
            found[name] = value
        for name, field in group.fields.items():
            if found.get(name) is None:
                self.reasons.append(Reason(prefix + name, "key.missing"))
            else:
                self._field(prefix + name, field, found[name])

    def equal(self, paths: tuple[str, ...]) -> None:
        lists = [(path, self.values[path]) for path in paths if path in self.values]
        for path, values in lists[1:]:
            if len(values) != len(lists[0][1]):
                self._wrong(path, "length.unequal", f"{len(values)}, {paths[0]} {len(lists[0][1])}")

    def _field(self, path: str, field: Field, value: Any) -> None:
        match field:
            case Group():
                self.group(path, field, value)
            case Text():
                self._text(path, field, value)
            case Time():
                self._time(path, value)
            case Number():
                self._keep(path, self._number(path, field, value))
            case Whole():
                self._keep(path, self._whole(path, field, value))
            case Numbers():
                self._list(
                    path, value, field.lengths, lambda at, each: self._number(at, field, each)
                )
            case Wholes():
                self._unique(path, field, value)

    def _text(self, path: str, field: Text, value: Any) -> None:
        if not isinstance(value, str):
            self._wrong(path, "type.text", value)
        elif field.hex_digits and not (len(value) == field.hex_digits and _HEX.fullmatch(value)):
            self._wrong(path, "text.hex", value)
        else:
            self.values[path] = value

    def _time(self, path: str, value: Any) -> None:
        if not isinstance(value, str):
            self._wrong(path, "type.text", value)
            return
        found = moments.parse(value)
        if isinstance(found, str):
            self._wrong(path, found, value)
        else:
            self.values[path] = found

    def _number(self, path: str, field: Bounds, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._none(path, "type.number", value)
        if not abs(value) <= field.size_max or not isfinite(value):
            return self._none(path, "number.too-large", value)
        broken = field.broken(value) if self._ranges else None
        # Adding 0.0 makes -0.0 plain: parsers differ about the sign of zero.
        return float(value) + 0.0 if broken is None else self._none(path, broken, value)

    def _whole(self, path: str, field: Bounds, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return self._none(path, "type.whole", value)
        if abs(value) > WHOLE_MAX:
            return self._none(path, "number.too-large", value)
        broken = field.broken(value) if self._ranges else None
        return value if broken is None else self._none(path, broken, value)

    def _unique(self, path: str, field: Wholes, value: Any) -> None:
        before = len(self.reasons)
        lengths = (0, LIST_COUNT_MAX)
        self._list(path, value, lengths, lambda at, each: self._whole(at, field, each))
        if len(self.reasons) == before and self._ranges and len(set(value)) != len(value):
            self._wrong(path, "list.unique", value)

    def _list(
        self, path: str, value: Any, lengths: tuple[int, int], convert: Callable[[str, Any], Any]
    ) -> None:
        if not isinstance(value, list) or isinstance(value, Pairs):
            self._wrong(path, "type.list", value)
            return
        if not lengths[0] <= len(value) <= lengths[1]:
            self._wrong(path, "length", str(len(value)))
        if len(value) <= max(lengths[1], LIST_COUNT_MAX):
            self.values[path] = [convert(f"{path}[{at}]", each) for at, each in enumerate(value)]

    def _keep(self, path: str, value: Any) -> None:
        if value is not None:
            self.values[path] = value

    def _none(self, path: str, rule: str, value: Any) -> Any:
        self._wrong(path, rule, value)

    def _wrong(self, path: str, rule: str, value: Any) -> None:
        if len(self.reasons) <= REASON_COUNT_MAX:
            self.reasons.append(Reason(path, rule, _shown(value)))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return short(value)
    if isinstance(value, Pairs):
        return "an object"
    try:
        return short(json.dumps(value, default=repr))
    except (RecursionError, ValueError):
        return "a list" if isinstance(value, list) else "a number"


def short(text: str) -> str:
    """A text as a reason shows it."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}… ({len(text)} characters)"


def _struct(group: Group, name: str) -> Any:
    fields = [(key, _type(field, f"{name}_{key}")) for key, field in group.fields.items()]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)


def _type(field: Field, name: str) -> Any:
    match field:
        case Group():
            return _struct(field, name)
        case Text() | Time():
            return str
        case Number():
            return float
        case Whole():
            return int
        case Numbers():
            return list[float]
        case Wholes():
            return list[int]
