"""Readings that come as CSV: one header line, one reading a line, every column text.

A row becomes the same body a device would have posted as JSON. A row that cannot is kept as it
stands: the pipeline puts it into quarantine, nothing is lost. Blank lines are no rows, and a
header repeated in the middle is no reading.
"""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

BOM: Final = b"\xef\xbb\xbf"
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)

Cells = Mapping[str, str]


class CsvRow(NamedTuple):
    """One row: its reading as a body, or None and the bytes as they stand."""

    line: int
    raw: bytes
    body: dict[str, Any] | None


class UnknownHeader(ValueError):
    """The first line names other columns than the dataset has: each (path, what is wrong)."""

    def __init__(self, *wrong: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{path} {text}" for path, text in wrong))
        self.wrong = wrong


class NotAReading(ValueError):
    """A row whose cells cannot become a body."""


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
                names = self._names(cells)
            elif cells is None or not self._is_header(cells, names):
                rows.append(CsvRow(number, raw, self._body(names, cells)))
        if names is None:
            raise UnknownHeader(("header", "is missing: there is no line"))
        return rows

    def _names(self, cells: list[str] | None) -> list[str]:
        if cells is None:
            raise UnknownHeader(("header", "is no line of UTF-8 text with commas"))
        names = [self.older_names.get(cell.strip(), cell.strip()) for cell in cells]
        told = dict.fromkeys(names)
        wrong = [(_path(name), "is unknown") for name in told if name not in self.columns]
        wrong += [(_path(name), "is missing") for name in self.columns if name not in told]
        wrong += [
            (_path(name), "is given more than once")
            for name in told
            if name in self.columns and name not in self.may_repeat and names.count(name) > 1
        ]
        if wrong:
            raise UnknownHeader(*wrong)
        return names

    def _is_header(self, cells: list[str], names: list[str]) -> bool:
        return [self.older_names.get(cell.strip(), cell.strip()) for cell in cells] == names

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
    if not {"0", "1", ""}.issuperset(cells):
        raise NotAReading(str(cells))
    return [at for at, cell in enumerate(cells, 1) if cell == "1"]


def _cells(raw: bytes) -> list[str] | None:
    try:
        return next(csv.reader([raw.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        return None


def _path(column: str) -> str:
    return f"header.{column[:100]}"


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
)
