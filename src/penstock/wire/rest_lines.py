"""Many messages in one request, one JSON object a line, into columns.

All lines are checked before any of them becomes a batch. The usual case goes column by column; a
line that is wrong is looked for one by one only when there is one, so that its number can be told.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.batch import Columns, check, encode_columns
from penstock.batch.encode import key_hashes
from penstock.vocabulary.errors import InvalidArgument, TooLarge, UsageError
from penstock.vocabulary.limits import BATCH_BYTES_MAX, MIB
from penstock.wire.rest_fields import Fields, from_base64, later_ms
from penstock.wire.rest_json import convert, key_count, parse

COUNT_CUT: Final = 10_000
BYTES_CUT: Final = 1 * MIB
"""Batches are cut at about this size, so that one does not hold up the others."""
LINES_MAX: Final = 100_000


class Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One message as a line. At most one of body, json and body_base64; none = no body."""

    body: str | UnsetType = UNSET
    json: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    deliver_at: float | UnsetType = UNSET
    delay_s: float | UnsetType = UNSET
    expires_at: float | UnsetType = UNSET
    ttl_s: float | UnsetType = UNSET


NAMES: Final = Line.__struct_fields__
_PLAIN: Final = frozenset({"body", "key", "id", "headers", "priority"})
"""Fields that become a column as they are."""
_lines: Final = msgspec.json.Decoder(Line)


class Bulk(msgspec.Struct, frozen=True):
    """Checked messages as columns."""

    columns: Columns
    size: int
    """About how many bytes they have."""

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self.columns.bodies)


class Parcel(NamedTuple):
    """One batch and which of the messages are in it, by their number."""

    partition: int
    batch: bytes
    indexes: Sequence[int]


# -- lines into columns ---------------------------------------------------------------------------


def read_lines(data: bytes, now_ms: int) -> Bulk:
    """The messages of these lines. Raises InvalidArgument, TooLarge; the text names the line."""
    try:
        lines = _lines.decode_lines(data)
        if lines and len(lines) <= LINES_MAX:
            found = _columns(lines, now_ms)
            if _colons(data) == found[1]:
                return Bulk(found[0], len(data))
    except (msgspec.MsgspecError, RecursionError, UsageError, UnicodeError):
        pass
    return bulk([fields for _, fields in _one_by_one(data, now_ms)], len(data))


def bulk(messages: list[Fields], size: int) -> Bulk:
    """Messages that were checked one by one, as columns. Raises InvalidArgument for none."""
    if not messages:
        raise InvalidArgument("there is no message in the body")
    rows = list(zip(*messages, strict=True))
    keys, ids, headers, priorities, deliver_at, expires_at = map(_some, rows[1:])
    columns = Columns(
        bodies=list(rows[0]), keys=keys, ids=ids, headers=headers, priorities=priorities,
        deliver_at=deliver_at, expires_at=expires_at,
    )  # fmt: skip
    return Bulk(columns, size)


def _some(values: tuple[Any, ...]) -> list[Any] | None:
    """A column, None when nothing in it says anything."""
    first = values[0]
    if (first is None or first == 0) and values.count(first) == len(values):
        return None
    return list(values)


def _columns(lines: list[Line], now_ms: int) -> tuple[Columns, int]:
    """The columns, and how many keys the lines have together."""
    columns: dict[str, list[Any]] = {}
    keys = 0
    for name in NAMES:
        values = [getattr(line, name) for line in lines]
        unset = values.count(UNSET) if values[0] is UNSET else None
        if unset == len(values):
            continue
        columns[name] = values
        keys += len(values) - values.count(UNSET)
    if not _PLAIN.issuperset(columns):
        fields = [_fields(line, now_ms) for line in lines]
        jsons = [line.json for line in lines if line.json is not UNSET]
        keys += sum(key_count(parse(bytes(each))) for each in jsons)
        keys += sum(len(each) for each in columns.get("headers", ()) if each is not UNSET)
        return bulk(fields, 0).columns, keys
    chosen = {name: _defaulted(values, name) for name, values in columns.items()}
    bodies = chosen.get("body") or [None] * len(lines)
    headers = chosen.get("headers")
    if headers is not None:
        keys += sum(map(len, filter(None, headers)))
        headers = check.each(check.headers, headers)
    return Columns(
        bodies=check.bodies(bodies),
        keys=_checked(check.keys, chosen.get("key")),
        ids=_checked(check.ids, chosen.get("id")),
        headers=headers,
        priorities=_checked(check.priorities, chosen.get("priority")),
    ), keys


def _defaulted(values: list[Any], name: str) -> list[Any]:
    default = 0 if name == "priority" else None
    if UNSET not in values:
        return values
    return [default if value is UNSET else value for value in values]


def _checked(convert_column: Callable[[list[Any]], Any], values: list[Any] | None) -> Any:
    return None if values is None else convert_column(values)


def _colons(data: bytes) -> int:
    """Colons outside texts: as many as there are keys, repeated ones included."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2]).count(b":")


# -- line by line ---------------------------------------------------------------------------------


def _one_by_one(data: bytes, now_ms: int) -> list[tuple[int, Fields]]:
    found: list[tuple[int, Fields]] = []
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        if len(found) == LINES_MAX:
            raise TooLarge(f"more than {LINES_MAX} lines; send them in several requests")
        where = f"line {number}"
        value = parse(text, where)
        if not isinstance(value, dict):
            raise InvalidArgument(f"{where} is not a JSON object")
        if "json" in value:
            value["json"] = Raw(msgspec.json.encode(value["json"]))
        line = convert(value, Line, where)
        if line.json is not UNSET:
            line.json = msgspec.json.decode(text, type=Line).json
        try:
            found.append((number, _fields(line, now_ms)))
        except (InvalidArgument, TooLarge) as error:
            raise type(error)(f"{where}: {error.text}") from error
    return found


def _fields(line: Line, now_ms: int) -> Fields:
    fields = Fields(
        _body(line),
        _key(line),
        check.id(_or_none(line.id)),
        check.headers(_or_none(line.headers)),
        check.priority(0 if line.priority is UNSET else line.priority),
        _moment("deliver_at", line.deliver_at, "delay_s", line.delay_s, now_ms),
        _moment("expires_at", line.expires_at, "ttl_s", line.ttl_s, now_ms),
    )
    return fields._replace(body=check.body(fields.body), key=check.key(fields.key))


def _body(line: Line) -> bytes | None:
    given = [n for n in ("body", "json", "body_base64") if getattr(line, n) is not UNSET]
    if len(given) > 1:
        raise InvalidArgument(f"give one of {' and '.join(given)}, not both")
    if line.body is not UNSET:
        return check.body(line.body)
    if line.json is not UNSET:
        return bytes(line.json)
    return None if line.body_base64 is UNSET else from_base64("body_base64", str(line.body_base64))


def _key(line: Line) -> bytes | str | None:
    if line.key_base64 is UNSET:
        return _or_none(line.key)  # type: ignore[no-any-return]
    if line.key is not UNSET:
        raise InvalidArgument("give either key or key_base64, not both")
    return from_base64("key_base64", str(line.key_base64))


def _moment(name: str, at: Any, after: str, seconds: Any, now_ms: int) -> int:
    if seconds is UNSET:
        return 0 if at is UNSET else check.seconds(name, at)
    if at is not UNSET:
        raise InvalidArgument(f"give either {name} or {after}, not both")
    return later_ms(after, seconds, now_ms)


def _or_none(value: Any) -> Any:
    return None if value is UNSET else value


# -- columns into batches -------------------------------------------------------------------------


def pack(found: Bulk, partitions: int, turn: int) -> list[Parcel]:
    """The messages as batches, each for one partition; those of a key keep their order.

    Messages with neither key nor id go where it is `turn`.
    """
    columns, count = found.columns, found.count
    spread = turn % partitions
    if partitions == 1 or (columns.keys is None and columns.ids is None):
        return _cut(found, range(count), spread)
    chosen = _chosen(columns, count)
    places: dict[int, list[int]] = {}
    for index, (value, hashed) in enumerate(zip(chosen, key_hashes(chosen), strict=True)):
        partition = spread if value is None else hashed % partitions
        places.setdefault(partition, []).append(index)
    return [
        parcel
        for partition, indexes in places.items()
        for parcel in _cut(found, indexes, partition)
    ]


def _chosen(columns: Columns, count: int) -> list[Any]:
    """What decides about the partition of each message: its key, else its given id."""
    keys = columns.keys or [None] * count
    if columns.ids is None:
        return list(keys)
    return [id if key is None else key for key, id in zip(keys, columns.ids, strict=True)]


def _cut(found: Bulk, indexes: Sequence[int], partition: int) -> list[Parcel]:
    each = max(1, found.size // found.count)
    step = max(1, min(len(indexes), COUNT_CUT, BYTES_CUT // each))
    parcels: list[Parcel] = []
    for low in range(0, len(indexes), step):
        parcels.extend(_encode(found.columns, indexes[low : low + step], partition))
    return parcels


def _encode(columns: Columns, indexes: Sequence[int], partition: int) -> list[Parcel]:
    batch = encode_columns(_select(columns, indexes))
    if len(batch) <= BATCH_BYTES_MAX or len(indexes) == 1:
        return [Parcel(partition, batch, indexes)]
    half = len(indexes) // 2
    first = _encode(columns, indexes[:half], partition)
    return first + _encode(columns, indexes[half:], partition)


def _select(columns: Columns, indexes: Sequence[int]) -> Columns:
    if len(indexes) == len(columns.bodies):
        return columns
    pick = partial(_pick, indexes=indexes)
    names = Columns.__struct_fields__
    found: dict[str, Any] = {name: pick(getattr(columns, name)) for name in names}
    return Columns(**found)


def _pick(values: list[Any] | None, indexes: Sequence[int]) -> list[Any] | None:
    if values is None:
        return None
    if isinstance(indexes, range):
        return values[indexes.start : indexes.stop]
    return [values[index] for index in indexes]
