"""The row work of one range: what Spark's Python workers run.

A worker reads its range from the broker, validates, analyses, transforms, drops duplicates and
writes Parquet files under names nobody else has. What it returns is small: file names, counts,
hashes, and what is to be published. The driver alone commits and publishes, in source order.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.pipeline import work
from penstock.pipeline.arrow import leave_pandas_alone, reuse_memory
from penstock.pipeline.datasets import finding
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import EVENTS, conflicts
from penstock.pipeline.flow import about_new
from penstock.pipeline.reading import raw_of
from penstock.pipeline.repositories.files import DataFile, write_files
from penstock.pipeline.repositories.known import FileMarks, Known, Marks, Numbers, marks_in
from penstock.pipeline.spark.connecting import reader_of
from penstock.vocabulary.reading import PlannedRange

PIECE_ROWS: Final = 100_000
"""Messages of a range that are worked on, and written to a file, together."""


class Target(msgspec.Struct, frozen=True):
    """A table the batch goes into, as the ledger pins it."""

    root: str
    staging: str
    files: list[DataFile]


class ReaderPlace(NamedTuple):
    """The reader whose ranges are read."""

    url: str
    topic: str
    subscription: str
    owner: str


class Plan(msgspec.Struct, frozen=True):
    """What every task of a batch is told."""

    dataset: str
    has_ranges: bool
    """Whether range rules are asked."""
    limits: dict[str, Any]
    targets: list[Target]
    keeps_rows: bool
    """Whether the rows are to be published onward."""


class Stored(msgspec.Struct, frozen=True):
    """What a task wrote for one table."""

    root: str
    files: list[DataFile]
    stored: int
    duplicate: int
    moment: bytes
    """Of the new rows: n u64."""

    @property
    def moments(self) -> Numbers:
        """Whose and when the new rows are."""
        return np.frombuffer(self.moment, np.uint64)


class Outcome(msgspec.Struct, frozen=True):
    """What became of one range."""

    partition: int
    start: int
    end: int
    read: int
    quarantined: list[work.Quarantined]
    stored: list[Stored]
    events: bytes
    """As the first table sees them; Arrow."""
    rows: bytes
    """The new rows of the first table, when they are to be published; Arrow."""


Priors = Mapping[str, Sequence[Marks]]
"""New rows of earlier ranges, for each table."""


def marks_of(plan: Plan, stored: Stored) -> Marks:
    """What tells the new rows apart. What they say is read from their files, if somebody asks."""
    (target,) = (each for each in plan.targets if each.root == stored.root)
    root, dataset = str(Path(target.root) / target.staging), finding.find(plan.dataset)
    return FileMarks(stored.moments, partial(marks_in, root, dataset, stored.files))


def work_planned(plan: Plan, place: ReaderPlace, planned: PlannedRange) -> bytes:
    """Does the work of a range; returns the encoded Outcome."""
    return encode(work_range(plan, place, *planned))


def encode(outcome: Outcome) -> bytes:
    """What a worker returns."""
    return msgspec.msgpack.encode(outcome)


def decode(data: bytes) -> Outcome:
    """What a worker returned."""
    return msgspec.msgpack.decode(data, type=Outcome)


def work_range(
    plan: Plan, place: ReaderPlace, partition: int, start: int, end: int,
    priors: Priors | None = None,
) -> Outcome:  # fmt: skip
    """Reads a range and does its work."""
    reader = reader_of(*place)
    raws = (raw for batch in reader.batches(partition, start, end) for raw in raw_of(batch))
    return work_messages(plan, partition, start, end, raws, priors or {})


def work_messages(
    plan: Plan, partition: int, start: int, end: int, raws: Iterable[pa.RecordBatch],
    priors: Priors,
) -> Outcome:  # fmt: skip
    """The work on the messages of a range, wherever they were read, piece by piece.

    Memory that is used again is much faster than memory that is new, and a large range needs no
    more of it than a piece.
    """
    dataset = finding.find(plan.dataset)
    leave_pandas_alone()  # unless the dataset has imported it
    reuse_memory()
    limits = msgspec.convert(plan.limits, dataset.limits)
    before = {target.root: list(priors.get(target.root, ())) for target in plan.targets}
    parts = [Part(0, [], [Stored(t.root, [], 0, 0, b"") for t in plan.targets], [], [])]
    for piece in work.pieces(raws, PIECE_ROWS):
        checked = work.check(dataset, piece, ranges=plan.has_ranges, limits=limits)
        parts.append(_worked(plan, dataset, checked, before))
    return Outcome(
        partition, start, end,
        sum(part.read for part in parts),
        [one for part in parts for one in part.quarantined],
        [_together([part.stored[at] for part in parts]) for at in range(len(plan.targets))],
        to_bytes(pa.concat_tables([EVENTS.empty_table(), *(e for p in parts for e in p.events)])),
        _rows_of(parts) if plan.keeps_rows else b"",
    )  # fmt: skip


class Part(NamedTuple):
    """What became of a piece of a range."""

    read: int
    quarantined: list[work.Quarantined]
    stored: list[Stored]
    events: list[pa.Table]
    """As the first table sees them."""
    rows: list[pa.Table]
    """The new rows of the first table, when they are to be published."""


def _worked(
    plan: Plan, dataset: Dataset, checked: work.Checked, before: dict[str, list[Marks]]
) -> Part:
    made = work.make(dataset, checked.good)
    part = Part(checked.read, checked.quarantined, [], [], [])
    for target in plan.targets:
        one, new, events = _store(dataset, target, checked, made, before[target.root])
        before[target.root].append(marks_of(plan, one))
        if not part.stored:
            part.events.append(events)
            if plan.keeps_rows:
                part.rows.append(new)
        part.stored.append(one)
    return part


def _together(stored: list[Stored]) -> Stored:
    return Stored(
        stored[0].root,
        [file for each in stored for file in each.files],
        sum(each.stored for each in stored),
        sum(each.duplicate for each in stored),
        b"".join(each.moment for each in stored),
    )


def _rows_of(parts: list[Part]) -> bytes:
    found = [rows for part in parts for rows in part.rows]
    return to_bytes(pa.concat_tables(found)) if found else b""


def _store(
    dataset: Dataset, target: Target, checked: work.Checked, made: work.Made, before: list[Marks]
) -> tuple[Stored, pa.Table, pa.Table]:
    known = _known(target.root, dataset)
    sifted = known.sift(made.rows, made.marks, target.files, before)
    is_all = bool(sifted.is_new.all())
    new = made.rows if is_all else made.rows.filter(pa.array(sifted.is_new))
    marks = made.marks if is_all else made.marks.pick(sifted.is_new)
    clashing = made.rows.filter(pa.array(sifted.is_conflict))
    events = pa.concat_tables(
        [about_new(checked.events, made.rows, ~sifted.is_new), conflicts(clashing, dataset.keys)]
    )
    rows = new.select(dataset.schema.names)
    files = write_files(target.root, target.staging, dataset, rows)
    if len(files) == 1:
        known.note(files[0], marks)
    one = Stored(
        target.root, files, len(new), sifted.duplicate,
        np.ascontiguousarray(marks.moment).tobytes(),
    )  # fmt: skip
    return one, new, events


_tables: dict[tuple[str, str], Known] = {}


def _known(root: str, dataset: Dataset) -> Known:
    """What this process knows of the files of a table, from batch to batch."""
    place = (root, dataset.name)
    if place not in _tables:
        _tables[place] = Known(root, dataset)
    return _tables[place]


def to_bytes(table: pa.Table) -> bytes:
    """A table as Arrow bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def to_table(data: bytes) -> pa.Table:
    """The table of Arrow bytes."""
    return pa.ipc.open_stream(data).read_all()
