"""Readings that come as CSV: one header line, one reading a line, every column text.

A row becomes the same body a device would have posted as JSON. A row that cannot is kept as it
stands: the pipeline puts it into quarantine, nothing is lost. Blank lines are no rows, and a
header in the middle is no reading: files that were joined may have their columns in other orders.
"""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

BOM: Final = b"\xef\xbb\xbf"
ROW: Final = "csv.row"
"""The rule of a row that is wrong as a whole."""
FLAGS: Final = frozenset({"0", "1", ""})
SAMPLE_BYTES: Final = 200
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)

Cells = Mapping[str, str]


class CsvRow(NamedTuple):
    """One row: its reading as a body, or None and the bytes as they stand."""

    line: int
    raw: bytes
    body: dict[str, Any] | None
    columns: tuple[str, ...]
    """What the header above it calls its cells."""


class UnknownHeader(ValueError):
    """The first line names other columns than the dataset has: each (path, what is wrong)."""

    def __init__(self, *wrong: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{path} {text}" for path, text in wrong))
        self.wrong = wrong


class NotAReading(ValueError):
    """A row whose cells cannot become a body."""


class WrongCell(NamedTuple):
    """What is wrong with a row: the column, or nothing for the whole row, the rule, the text."""

    column: str
    rule: str
    text: str


@dataclass(frozen=True)
class CsvForm:
    """How the readings of a dataset look as CSV."""

    columns: tuple[str, ...]
    """The columns, in any order."""
    body: Callable[[Cells], dict[str, Any]]
    """A row as a body. Raises NotAReading."""
    older_names: Mapping[str, str] = field(default_factory=dict)
    """Names that older devices use for a column."""
    may_repeat: frozenset[str] = frozenset()
    """Columns that may occur twice, with equal values."""
    numbers: frozenset[str] = frozenset()
    """Columns of which every cell spells a number."""
    flags: frozenset[str] = frozenset()
    """Columns of 1, 0 or nothing."""
    needed: frozenset[str] = frozenset()
    """Columns that are never empty."""

    def read(self, data: bytes) -> list[CsvRow]:
        """All rows. Raises UnknownHeader."""
        lines = data.removeprefix(BOM).split(b"\n")
        names: list[str] | None = None
        rows: list[CsvRow] = []
        for number, line in enumerate(lines, 1):
            raw = line.removesuffix(b"\r")
            if not raw.strip(b" \t,"):
                continue
            cells = _cells(raw)
            if names is None:
                names = self._names(cells, "header")
            elif cells is not None and self._is_header(cells):
                names = self._names(cells, f"header[line {number}]")
            else:
                rows.append(CsvRow(number, raw, self._body(names, cells), tuple(names)))
        if names is None:
            raise UnknownHeader(("header", "is missing: there is no line"))
        return rows

    def wrong(self, raw: bytes, columns: Sequence[str]) -> list[WrongCell]:
        """Why a row under these columns is no reading: every cell, or the row as a whole."""
        cells = _cells(raw)
        if cells is None:
            return [WrongCell("", ROW, _sample(raw))]
        if columns and len(cells) != len(columns):
            said = f"{len(cells)} cells under {len(columns)} columns: "
            return [WrongCell("", ROW, said + _sample(raw))]
        found: list[WrongCell] = []
        row: dict[str, str] = {}
        for name, cell in zip(columns, cells, strict=False):
            text = cell.strip()
            if row.setdefault(name, text) != text:
                found.append(WrongCell(name, "csv.repeated", text))
            elif (rule := self._broken(name, text)) is not None:
                found.append(WrongCell(name, rule, text))
        return found or [WrongCell("", ROW, _sample(raw))]

    def _broken(self, name: str, text: str) -> str | None:
        if name in self.numbers and not _NUMBER.fullmatch(text):
            return "type.number"
        if name in self.flags and text not in FLAGS:
            return "csv.flag"
        return "csv.empty" if name in self.needed and not text else None

    def _names(self, cells: list[str] | None, where: str) -> list[str]:
        if cells is None:
            raise UnknownHeader((where, "is no line of UTF-8 text with commas"))
        names = self._named(cells)
        told = dict.fromkeys(names)
        wrong = [(_path(where, name), "is unknown") for name in told if name not in self.columns]
        wrong += [(_path(where, name), "is missing") for name in self.columns if name not in told]
        wrong += [
            (_path(where, name), "is given more than once")
            for name in told
            if name in self.columns and name not in self.may_repeat and names.count(name) > 1
        ]
        if wrong:
            raise UnknownHeader(*wrong)
        return names

    def _named(self, cells: list[str]) -> list[str]:
        return [self.older_names.get(cell.strip(), cell.strip()) for cell in cells]

    def _is_header(self, cells: list[str]) -> bool:
        """True for a line of which most are names of columns: no row looks like that."""
        return 2 * sum(name in self.columns for name in self._named(cells)) > len(cells)

    def _body(self, names: list[str], cells: list[str] | None) -> dict[str, Any] | None:
        if cells is None or len(cells) != len(names):
            return None
        row: dict[str, str] = {}
        for name, cell in zip(names, cells, strict=True):
            if row.setdefault(name, cell.strip()) != cell.strip():
                return None
        try:
            return self.body(row)
        except NotAReading:
            return None


def number(text: str) -> msgspec.Raw:
    """A cell as the JSON number it spells. Raises NotAReading."""
    if not _NUMBER.fullmatch(text):
        raise NotAReading(text)
    return msgspec.Raw(text.encode())


def flags(cells: list[str]) -> list[int]:
    """The numbers, from 1 on, of the cells that say 1. Raises NotAReading."""
    if not FLAGS.issuperset(cells):
        raise NotAReading(str(cells))
    return [at for at, cell in enumerate(cells, 1) if cell == "1"]


def _cells(raw: bytes) -> list[str] | None:
    try:
        return next(csv.reader([raw.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        return None


def _sample(raw: bytes) -> str:
    return raw[:SAMPLE_BYTES].decode("utf-8", "replace")


def _path(where: str, column: str) -> str:
    return f"{where}.{column[:100]}"


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}.{at}" for at in range(1, count + 1))


_TEMPS: Final = _numbered("pack.temp", 3)
_VOLTS: Final = _numbered("cell.volts", 14)
_OPEN: Final = _numbered("cell.open", 14)
_FET_TEMPS: Final = _numbered("fet.temp", 2)
_FET_OPEN: Final = _numbered("fet.open", 2)


def _pms_body(cells: Cells) -> dict[str, Any]:
    if not cells["pms_id"]:
        raise NotAReading("pms_id")
    return {
        "pms_id": cells["pms_id"],
        "status": {"code": cells["status.code"], "temp": number(cells["status.temp"])},
        "time_local": cells["time_local"],
        "pack": {
            "id": cells["pack.id"],
            "dock": number(cells["pack.dock"]),
            "amps": number(cells["pack.amps"]),
            "temp": [number(cells[name]) for name in _TEMPS],
            "cell": {
                "open": flags([cells[name] for name in _OPEN]),
                "volts": [number(cells[name]) for name in _VOLTS],
            },
            "fet": {
                "open": flags([cells[name] for name in _FET_OPEN]),
                "temp": [number(cells[name]) for name in _FET_TEMPS],
            },
        },
    }


PMS_CSV: Final = CsvForm(
    columns=(
        *("pms_id", "status.code", "status.temp", "time_local"),
        *("pack.id", "pack.dock", "pack.amps", *_TEMPS),
        *(*_VOLTS, *_OPEN, *_FET_TEMPS, *_FET_OPEN),
    ),
    body=_pms_body,
    older_names={"pms.id": "pms_id", "pms.temp": "status.temp", "status": "status.code"},
    may_repeat=frozenset({"pack.dock"}),
    numbers=frozenset(("status.temp", "pack.dock", "pack.amps", *_TEMPS, *_VOLTS, *_FET_TEMPS)),
    flags=frozenset((*_OPEN, *_FET_OPEN)),
    needed=frozenset({"pms_id"}),
)
