"""Everything in a store as plain rows, for JSON lines: what the bytes say, not what they mean.

First the superblock, the snapshots and the segments, then every record in log order with what is
unreadable between them. Positions are written `place:byte`. Never writes.
"""

from base64 import b64encode
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec

from penstock.batch import Batch
from penstock.batch.frame import frame_of
from penstock.journal import group
from penstock.journal.disk import Disk
from penstock.journal.record import decode
from penstock.journal.salvage import BYTE, SegmentFile, SnapshotFile, Stretch, Survey, scan, survey
from penstock.vocabulary.errors import MalformedBatch, NotAStore, ProtocolError
from penstock.vocabulary.records import Copied, Published, Record, Unit

Row = dict[str, Any]


def dump(disk: Disk, *, bodies: bool = False) -> Iterator[Row]:
    """The rows of a store; with `bodies`, records that hold messages also show them.

    Raises NotAStore, StoreTooNew.
    """
    found = survey(disk)
    try:
        if not (found.slots or found.snapshots or found.segments):
            raise NotAStore("the folder holds no Penstock store: there is nothing to show")
        yield from _slots(found)
        for snapshot in found.snapshots:
            yield _snapshot(snapshot)
        for segment in found.segments:
            yield _segment(segment)
        for segment in sorted(found.segments, key=lambda each: each.sequence):
            if segment.sequence and not segment.is_foreign:
                for stretch in scan(segment):
                    yield from _stretch(segment, stretch, bodies=bodies)
    finally:
        found.close()


def _slots(found: Survey) -> Iterator[Row]:
    for number, slot in enumerate(found.slots):
        row: Row = {"row": "superblock", "slot": number}
        if slot is None:
            yield row | {"state": "unreadable"}
            continue
        yield row | {
            "state": "ok",
            "is_newest": slot == found.block,
            "store_id": slot.store_id.hex(),
            "slot_generation": slot.slot_generation,
            "durable_upto": _place(slot.durable_upto),
            "snapshot_generation": slot.snapshot_generation,
            "broker_generation": slot.broker_generation,
            "is_clean": slot.is_clean,
        }


def _snapshot(each: SnapshotFile) -> Row:
    row: Row = {
        "row": "snapshot",
        "file": each.name,
        "generation": each.generation,
        "bytes": each.size,
    }
    if each.found is None:
        return row | {"state": "unreadable", "why": each.problem}
    return row | {
        "state": "ok",
        "start": _place(each.found.start),
        "records_before": each.found.meta.records,
        "segments": [one.sequence for one in each.found.meta.segments],
        "pieces": len(each.found.pieces),
    }


def _segment(segment: SegmentFile) -> Row:
    state = "ok" if segment.named_by == "header" else "header unreadable"
    if segment.is_foreign:
        state = "of another store"
    elif segment.is_blank and not segment.sequence:
        state = "blank"
    return {
        "row": "segment",
        "file": segment.file.name,
        "bytes": segment.file.size,
        "place": segment.sequence or None,
        "named_by": segment.named_by or None,
        "state": state,
    }


def _stretch(segment: SegmentFile, stretch: Stretch, *, bodies: bool) -> Iterator[Row]:
    found = stretch.group
    if found is not None and found.flags & group.FOOTER:
        yield {
            "row": "footer",
            "position": _place(found.position),
            "file": segment.file.name,
            "bytes": found.length,
            "checksum": "ok",
        }
        return
    for number, (position, rec) in enumerate(stretch.rows):
        yield {
            "row": "record",
            "number": None if found is None else found.first_record + number,
            "position": _place(position),
            "file": segment.file.name,
            "bytes": len(rec),
            "group": None if found is None else _place(found.position),
            # In a damaged group a record is proven by its own checksum only.
            "checksum": "ok" if found is not None else "rescued",
            **_record(rec, bodies=bodies),
        }
    if found is None:
        yield {
            "row": "unreadable",
            "position": _place(segment.base | stretch.start),
            "file": segment.file.name,
            "bytes": stretch.end - stretch.start,
            "rescued": len(stretch.rows),
            "checksum": "bad",
        }


def _record(rec: bytes, *, bodies: bool) -> Row:
    try:
        record = decode(rec)
    except ProtocolError as error:
        return {"kind": None, "why": str(error)}
    return _fields(record, bodies=bodies)


def _fields(record: Record, *, bodies: bool) -> Row:
    row: Row = {"kind": type(record).__name__}
    if isinstance(record, Unit):
        return row | {"records": [_fields(part, bodies=bodies) for part in record.records]}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "batch":
            row["batch_bytes"] = len(value)
        elif isinstance(value, IntEnum):
            row[name] = value.name.lower()
        else:
            row[name] = value.hex() if isinstance(value, bytes) else msgspec.to_builtins(value)
    if isinstance(record, Copied):
        row["count"] = len(record.offsets)
    if bodies and isinstance(record, Published | Copied):
        row["messages"] = _messages(record)
    return row


def _messages(record: Published | Copied) -> list[Row] | str:
    frame = frame_of(record, 0, 1 << 63)
    try:
        view = Batch(record.batch)
        return [
            {
                "offset": offset,
                "id": frame.id_of(view, index),
                "key": _plain(view.keys[index] if view.keys is not None else None),
                "headers": view.headers[index] if view.headers is not None else None,
                "body": _plain(view.bodies[index]),
            }
            for offset, index in zip(frame.offsets, frame.indexes, strict=True)
        ]
    except MalformedBatch as error:
        return str(error)


def _plain(value: bytes | str | None) -> Any:
    """Text as text; bytes that are not text as {"base64": …}."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _place(position: int) -> str:
    return f"{position >> 32}:{position & BYTE}"
