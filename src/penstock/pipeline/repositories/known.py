"""Which rows are stored already: 128-bit hashes of rows, compared file by file.

A row is a duplicate when the table, or an earlier row of the batch, says exactly the same; it is
a conflict when the same device, pack and moment say something else. Only files whose day and time
overlap are looked at, and what was read of a file is kept, up to a limit.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from penstock.pipeline.datasets import table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.repositories.files import DataFile, read_file

Numbers = np.ndarray[Any, np.dtype[Any]]

_NOTHING: Final = np.zeros((0, 2), np.uint64)
CACHE_ROWS_MAX: Final = 4_000_000
"""Rows whose hashes are kept in memory: 8 bytes each, 24 once their contents were asked for."""


class Marks:
    """What tells rows apart: a hash of everything they say, and one of whose and when.

    Most rows are alone with their device, pack and moment. What they say is therefore hashed only
    when somebody asks: `content` may be given as a function.
    """

    def __init__(self, content: Numbers | Callable[[], Numbers], moment: Numbers) -> None:
        self._content = content
        self.moment = moment
        """One u64 for each row."""

    @property
    def content(self) -> Numbers:
        """Two u64 for each row, hashed at the first use."""
        if callable(self._content):
            self._content = self._content()
        return self._content

    @property
    def is_hashed(self) -> bool:
        """True once somebody has asked for the contents."""
        return not callable(self._content)

    def pick(self, which: Numbers) -> "Marks":
        """Some of them."""
        content = self._content
        if callable(content):
            return Marks(lambda: self.content[which], self.moment[which])
        return Marks(content[which], self.moment[which])

    def said(self, moments: Numbers) -> Numbers:
        """The contents of the rows of these moments."""
        is_meant = is_among(self.moment, moments)
        return self.content[is_meant] if is_meant.any() else _NOTHING


class FileMarks(Marks):
    """The marks of files whose rows are gone from memory; contents are read from them again."""

    def __init__(self, moment: Numbers, read: Callable[[], Marks]) -> None:
        super().__init__(lambda: self._read().content, moment)
        self._again = read
        self._found: Marks | None = None

    def _read(self) -> Marks:
        if self._found is None:
            self._found = self._again()
            self.moment = self._found.moment  # a file has its rows in another order
        return self._found

    def said(self, moments: Numbers) -> Numbers:
        """The contents of the rows of these moments."""
        if not is_among(self.moment, moments).any():
            return _NOTHING
        return self._read().said(moments)


class Sifted(NamedTuple):
    """The verdict about the rows of a batch."""

    is_new: Numbers
    is_conflict: Numbers
    """New rows whose device, pack and moment were there with other values."""

    @property
    def duplicate(self) -> int:
        """How many rows are not new."""
        return int(np.count_nonzero(~self.is_new))


def marks_of(rows: pa.Table | pa.RecordBatch, dataset: Dataset) -> Marks:
    """The marks of rows."""
    moment = np.asarray(rows.column("time_event").cast(pa.int64())).astype(np.uint64)
    for key in dataset.keys:
        column = rows.column(key)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        coded = column.dictionary_encode()
        known = [xxh3_64_intdigest(each.encode()) for each in coded.dictionary.to_pylist()]
        texts = np.array(known, np.uint64)[np.asarray(coded.indices)]
        moment = (moment ^ texts) * np.uint64(0x9E3779B97F4A7C15)
        moment ^= moment >> np.uint64(29)
    return Marks(lambda: table.hashes(rows), moment)


class Known:
    """The marks of the files of one table, read when they are needed."""

    def __init__(self, root: str, dataset: Dataset) -> None:
        self._root = root
        self._dataset = dataset
        self._cache: OrderedDict[str, Marks] = OrderedDict()
        self._rows = 0

    def note(self, file: DataFile, marks: Marks) -> None:
        """Keeps what is known of a file that was just written, but not its rows."""
        if not marks.is_hashed and not isinstance(marks, FileMarks):
            marks = FileMarks(marks.moment, lambda: self._marks_in(file))
        self._cache[file.path] = marks
        self._rows += len(marks.moment)
        while self._rows > CACHE_ROWS_MAX and len(self._cache) > 1:
            _, gone = self._cache.popitem(last=False)
            self._rows -= len(gone.moment)

    def sift(
        self, rows: pa.Table, marks: Marks, files: list[DataFile], before: Sequence[Marks] = ()
    ) -> Sifted:
        """Tells new rows from those that are stored in these files or earlier in the batch.

        `before` are the marks of rows of the same batch that come before these and are not here.
        """
        count = len(rows)
        is_new, is_conflict = first_ones(marks)
        if count and before:
            _compare(marks, np.arange(count), before, is_new, is_conflict)
        if not count or not files:
            return Sifted(is_new, is_conflict & is_new)
        stamps = np.asarray(rows.column("time_event").cast(pa.int64()))
        days = np.floor_divide(stamps, 86_400_000_000)
        stored_on: dict[str, list[DataFile]] = {}  # a batch may hold years, a table more of them
        for file in files:
            stored_on.setdefault(file.day, []).append(file)
        for day in np.unique(days).tolist():
            at = np.flatnonzero(days == day)
            name = str(np.datetime64(day, "D"))
            low, high = int(stamps[at].min()), int(stamps[at].max())
            near = [each for each in stored_on.get(name, ()) if each.overlaps(name, low, high)]
            if near:
                stored = [self._marks(file) for file in near]
                _compare(marks, at, stored, is_new, is_conflict)
        return Sifted(is_new, is_conflict & is_new)

    def _marks(self, file: DataFile) -> Marks:
        found = self._cache.get(file.path)
        if found is None:
            keys = read_file(self._root, self._dataset, file, [*self._dataset.keys, "time_event"])
            found = FileMarks(marks_of(keys, self._dataset).moment, lambda: self._marks_in(file))
            self.note(file, found)
        else:
            self._cache.move_to_end(file.path)
        return found

    def _marks_in(self, file: DataFile) -> Marks:
        return marks_in(self._root, self._dataset, [file])


def marks_in(root: str, dataset: Dataset, files: Sequence[DataFile]) -> Marks:
    """The marks of the rows in files, their contents hashed."""
    found = [marks_of(read_file(root, dataset, file), dataset) for file in files]
    return Marks(
        np.concatenate([_NOTHING, *(each.content for each in found)]),
        np.concatenate([_NOTHING[:, 0], *(each.moment for each in found)]),
    )


def is_among(values: Numbers, others: Numbers) -> Numbers:
    """Which values are among the others; several times as fast as numpy's own for large ones."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(others)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[places] == values  # type: ignore[no-any-return]


def first_ones(marks: Marks) -> tuple[Numbers, Numbers]:
    """Which rows say something for the first time, and which contradict an earlier one."""
    count = len(marks.moment)
    is_new = np.ones(count, np.bool_)
    is_conflict = np.zeros(count, np.bool_)
    order = np.argsort(marks.moment, kind="stable")
    again = np.flatnonzero(marks.moment[order][1:] == marks.moment[order][:-1])
    if not len(again):
        return is_new, is_conflict
    rows = np.unique(np.concatenate([order[again], order[again + 1]]))
    said: dict[int, set[tuple[int, int]]] = {}
    contents, moments = marks.content[rows].tolist(), marks.moment[rows].tolist()
    for row, content, moment in zip(rows.tolist(), contents, moments, strict=True):
        known = said.setdefault(moment, set())
        pair = (content[0], content[1])
        is_new[row] = pair not in known
        is_conflict[row] = bool(known) and pair not in known
        known.add(pair)
    return is_new, is_conflict


def _compare(
    marks: Marks, at: Numbers, stored: Sequence[Marks], is_new: Numbers, is_conflict: Numbers
) -> None:
    """Takes newness from rows that are stored; marks those whose moment is stored differently."""
    moments = np.concatenate([each.moment for each in stored])
    is_met = is_among(marks.moment[at], moments)
    if not is_met.any():
        return
    met = at[is_met]
    near = np.concatenate([each.said(marks.moment[met]) for each in stored])
    known = set(map(tuple, near.tolist()))
    for row, pair in zip(met.tolist(), marks.content[met].tolist(), strict=True):
        if (pair[0], pair[1]) in known:
            is_new[row] = False
        else:
            is_conflict[row] = True
