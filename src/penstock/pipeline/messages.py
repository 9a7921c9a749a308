"""What a pipeline publishes: refused readings, events and, if asked, every row.

Whatever was in the source, what is published fits a message: a text too long for its place is cut,
and the header `penstock-cut` names that place.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import PUBLIC, RULE_COUNT_MAX
from penstock.pipeline.datasets.raw import RECEIVED, SENDER, moment_text
from penstock.pipeline.datasets.strict import Reason
from penstock.pipeline.work import BESIDE, Quarantined
from penstock.vocabulary.limits import BODY_BYTES_MAX, HEADER_BYTES_MAX, ID_BYTES_MAX, KEY_BYTES_MAX
from penstock.vocabulary.message import Message

REASONS: Final = "penstock-reasons"
STAGE: Final = "penstock-stage"
POSITION: Final = "penstock-position"
PIPELINE: Final = "penstock-pipeline"
ID: Final = "penstock-id"
CUT: Final = "penstock-cut"
"""Names what does not stand here whole: headers, and `body` for an event or a row."""
REASON_BYTES_MAX: Final = HEADER_BYTES_MAX // 2
PASSED_BYTES_MAX: Final = 3 * 1024
"""Of `source` and of `content-type`, as the refused message had them."""
TEXT_BYTES_MAX: Final = 400
"""Of a path or a value, when the reasons are too many bytes together."""
PLAIN_CHARACTERS_MAX: Final = KEY_BYTES_MAX // 4
"""So many characters fit a key, whatever they are."""
JSON: Final = "application/json"
TYPE: Final = "content-type"

_MARK: Final = "…"

Numbered = tuple[int, Message]
"""A message and its number: source offset × 1024 + rule number."""


def number(offset: int, rule: int = 0) -> int:
    """The number of what comes from a source offset."""
    return offset * RULE_COUNT_MAX + rule


def quarantine(pipeline: str, topic: str, refused: list[Quarantined]) -> Iterator[Numbered]:
    """The original bytes; reasons, stage and source position in the headers."""
    for each in refused:
        headers = {
            REASONS: reasons_text(each.reasons),
            STAGE: each.stage,
            POSITION: f"{topic}/{each.partition}:{each.offset}",
            PIPELINE: pipeline,
            ID: each.id,
            RECEIVED: moment_text(each.received),
        }
        if each.sender is not None:
            headers[SENDER] = each.sender
        if each.content_type is not None:
            headers[TYPE] = each.content_type
        _cut_headers(headers, {ID: ID_BYTES_MAX, SENDER: PASSED_BYTES_MAX, TYPE: PASSED_BYTES_MAX})
        yield number(each.offset), Message(body=each.body, headers=headers)


def _cut_headers(headers: dict[str, str], limits: dict[str, int]) -> None:
    """Cuts headers that are over their limit of bytes, and says which."""
    cut = [name for name, most in limits.items() if len(headers.get(name, "").encode()) > most]
    if cut:
        headers |= {name: shortened(headers[name], limits[name]) for name in cut}
        headers[CUT] = ",".join(cut)


def shortened(text: str, bytes_max: int) -> str:
    """A text, or as much of its beginning as so many bytes hold, with a mark at its end."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    return data[: bytes_max - len(_MARK.encode())].decode(errors="ignore") + _MARK


def reasons_text(reasons: tuple[Reason, ...]) -> str:
    """The reasons as JSON; when they do not fit a header, as many as do, and how many there are.

    There is one at least, with its rule and its path: a long path or value is cut.
    """
    text = msgspec.json.encode(reasons)
    few = list(reasons)
    if len(text) > REASON_BYTES_MAX:
        few = [
            Reason(shortened(path, TEXT_BYTES_MAX), rule, shortened(value, TEXT_BYTES_MAX))
            for path, rule, value in map(msgspec.structs.astuple, reasons)
        ]
        text = msgspec.json.encode(few)
    while len(text) > REASON_BYTES_MAX:
        few = few[: len(few) // 2]
        left = Reason("", "more", str(len(reasons) - len(few)))
        text = msgspec.json.encode([*few, left])
    return text.decode()


def read_reasons(headers: dict[str, str]) -> list[Reason]:
    """The reasons of a quarantined message."""
    return msgspec.json.decode(headers.get(REASONS, "[]"), type=list[Reason])


def events(source: str, found: pa.Table) -> Iterator[tuple[int, Numbered]]:
    """Each event as (source partition, (number, message))."""
    for row in found.to_pylist():
        body = {name: row[name] for name in PUBLIC}
        body["time_event"] = moment_of_row(row["time_event"])
        headers = {
            TYPE: JSON, "type": f"penstock.{row['rule']}", "source": source,
            "subject": row["device"],
        }  # fmt: skip
        _cut_headers(headers, {"subject": KEY_BYTES_MAX})
        yield row["_partition"], (
            number(row["_offset"], row["_number"]), _fitting(body, row["device"], headers)
        )  # fmt: skip


def forwarded(dataset: Dataset, rows: pa.Table | None) -> Iterator[tuple[int, Numbered]]:
    """Each row as the message that is published onward: (source partition, (number, message))."""
    if rows is None:
        return
    ordered = rows.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    for row in ordered.to_pylist():
        partition, offset = row["_partition"], row["_offset"]
        body: dict[str, Any] = {name: row[name] for name in row if name not in BESIDE}
        for name, value in body.items():
            if name.startswith("time_") and hasattr(value, "isoformat"):
                body[name] = moment_of_row(value)
        headers = {TYPE: JSON, "type": f"penstock.row.{dataset.name}"}
        yield partition, (number(offset), _fitting(body, row[dataset.keys[0]], headers))


def _fitting(tree: dict[str, Any], device: str, headers: dict[str, str]) -> Message:
    """A message of a device. Texts of a body that is too large are cut.

    When that is not enough, it has no body: it refers to what the table holds.
    """
    body: bytes | None = msgspec.json.encode(tree)
    if len(body or b"") > BODY_BYTES_MAX:
        body = msgspec.json.encode(_cut_texts(tree))
        body = body if len(body) <= BODY_BYTES_MAX else None
        headers[CUT] = ",".join(filter(None, (headers.get(CUT), "body")))
    return Message(body=body, key=key_of(device), headers=headers)


def _cut_texts(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _cut_texts(each) for name, each in tree.items()}
    if isinstance(tree, list):
        return [_cut_texts(each) for each in tree]
    return shortened(tree, KEY_BYTES_MAX) if isinstance(tree, str) else tree


def key_of(device: str) -> str:
    """What keeps the messages of a device in order: its id, or a hash when that is no key."""
    if len(device) <= PLAIN_CHARACTERS_MAX or len(device.encode()) <= KEY_BYTES_MAX:
        return device
    return xxh3_128_hexdigest(device.encode())


def moment_of_row(value: Any) -> str:
    """A time of a row as text with four decimals, as the tables of the contract print it."""
    return f"{value.year:04}{value:-%m-%d %H:%M:%S}.{value.microsecond // 100:04}"
