"""What a pipeline publishes: refused readings, events and, if asked, every row."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import PUBLIC, RULE_COUNT_MAX
from penstock.pipeline.datasets.raw import RECEIVED, SENDER, moment_text
from penstock.pipeline.datasets.strict import Reason
from penstock.pipeline.work import BESIDE, Quarantined
from penstock.vocabulary.limits import HEADER_BYTES_MAX
from penstock.vocabulary.message import Message

REASONS: Final = "penstock-reasons"
STAGE: Final = "penstock-stage"
POSITION: Final = "penstock-position"
PIPELINE: Final = "penstock-pipeline"
ID: Final = "penstock-id"
REASON_BYTES_MAX: Final = HEADER_BYTES_MAX // 2
JSON: Final = "application/json"

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
            headers["content-type"] = each.content_type
        yield number(each.offset), Message(body=each.body, headers=headers)


def reasons_text(reasons: tuple[Reason, ...]) -> str:
    """The reasons as JSON; when they do not fit a header, as many as do, and how many there are."""
    text = msgspec.json.encode(reasons)
    few = list(reasons)
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
            "content-type": JSON, "type": f"penstock.{row['rule']}", "source": source,
            "subject": row["device"],
        }  # fmt: skip
        message = Message(body=msgspec.json.encode(body), key=row["device"], headers=headers)
        yield row["_partition"], (number(row["_offset"], row["_number"]), message)


def forwarded(dataset: Dataset, rows: pa.Table) -> Iterator[tuple[int, Numbered]]:
    """Each row as the message that is published onward: (source partition, (number, message))."""
    ordered = rows.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    for row in ordered.to_pylist():
        partition, offset = row["_partition"], row["_offset"]
        body: dict[str, Any] = {name: row[name] for name in row if name not in BESIDE}
        for name, value in body.items():
            if name.startswith("time_") and hasattr(value, "isoformat"):
                body[name] = moment_of_row(value)
        message = Message(
            body=msgspec.json.encode(body), key=row[dataset.keys[0]],
            headers={"content-type": JSON, "type": f"penstock.row.{dataset.name}"},
        )  # fmt: skip
        yield partition, (number(offset), message)


def moment_of_row(value: Any) -> str:
    """A time of a row as text with four decimals, as the tables of the contract print it."""
    return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 100:04}"
