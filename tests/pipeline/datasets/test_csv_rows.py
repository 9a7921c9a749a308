import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.csv_rows import BOM, PMS_CSV, UnknownHeader
from penstock.pipeline.datasets.raw import csv_columns, csv_type, raw_batch

FILE = Path(__file__).parents[1] / "data" / "pms-2019-08.csv"
HEADER = ",".join(PMS_CSV.columns)
CELLS = {
    "pms_id": "PMS-1", "status.code": "0001", "status.temp": "48.30", "time_local": "t",
    "pack.id": "0241", "pack.dock": "1", "pack.amps": "-0.625", "cell.open.2": "1",
    "cell.open.3": "0", "fet.open.2": "1",
}  # fmt: skip


def line(**changes: str) -> str:
    cells = CELLS | {name.replace("__", "."): text for name, text in changes.items()}
    return ",".join(cells.get(name, "" if ".open." in name else "3.5") for name in PMS_CSV.columns)


def bodies(text: str) -> list[Any]:
    rows = PMS_CSV.read(text.encode())
    return [row.body and json.loads(msgspec.json.encode(row.body)) for row in rows]


def test_a_row_becomes_the_body_a_device_posts() -> None:
    (body,) = bodies(f"{HEADER}\n{line()}\n")
    assert body["status"] == {"code": "0001", "temp": 48.3}
    assert body["pack"]["cell"] == {"open": [2], "volts": [3.5] * 14}
    assert body["pack"]["fet"] == {"open": [2], "temp": [3.5, 3.5]}
    assert body["pack"]["temp"] == [3.5] * 3


def test_numbers_keep_their_spelling() -> None:
    (row,) = PMS_CSV.read(f"{HEADER}\n{line()}".encode())
    assert b'"temp":48.30}' in msgspec.json.encode(row.body)


def test_blank_lines_and_repeated_headers_are_no_rows() -> None:
    text = f"\r\n{HEADER}\r\n\r\n{line()}\r\n,,,,\r\n{HEADER}\r\n{line()}\r\n  \r\n"
    rows = PMS_CSV.read(text.encode())
    assert [row.line for row in rows] == [4, 7]
    assert all(row.body for row in rows)


def test_a_header_in_the_middle_with_another_order_is_followed() -> None:
    columns = list(PMS_CSV.columns)
    swapped = [columns[:], line(pack__amps="77").split(",")]
    for cells in swapped:
        one, other = columns.index("pack.amps"), columns.index("pack.temp.1")
        cells[one], cells[other] = cells[other], cells[one]
    joined = "\n".join(",".join(cells) for cells in swapped)
    before, after = bodies(f"{HEADER}\n{line()}\n{joined}\n")
    assert (before["pack"]["amps"], before["pack"]["temp"]) == (-0.625, [3.5] * 3)
    assert (after["pack"]["amps"], after["pack"]["temp"]) == (77, [3.5] * 3)
    strange = HEADER.replace("pack.amps", "pack.ampere")
    with pytest.raises(UnknownHeader, match=r"header\[line 3\]\.pack\.ampere is unknown"):
        PMS_CSV.read(f"{HEADER}\n{line()}\n{strange}\n{line()}\n".encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"pack__amps": "x"}, {"pack__amps": ""}, {"pack__amps": "NaN"}, {"pack__amps": "1,5"},
        {"cell__open__1": "2"}, {"pms_id": ""}, {"status__temp": ".5"},
    ],
)  # fmt: skip
def test_a_row_that_cannot_become_a_body_is_kept_as_it_stands(changes: dict[str, str]) -> None:
    good, bad = PMS_CSV.read(f"{HEADER}\n{line()}\n{line(**changes)}\n".encode())
    assert good.body is not None
    assert bad.body is None
    assert bad.raw == line(**changes).encode()


def test_bytes_that_are_not_text_are_kept_too() -> None:
    rows = PMS_CSV.read(f"{HEADER}\n".encode() + b"\xff\xfe,1\n" + line().encode())
    assert [row.body is None for row in rows] == [True, False]
    assert rows[0].raw == b"\xff\xfe,1"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (HEADER.replace("pack.id,", ""), "header.pack.id is missing"),
        (HEADER + ",more", "header.more is unknown"),
        (HEADER + ",pack.id", "header.pack.id is given more than once"),
        ("", "header is missing"),
        ("\xff", "unknown"),
    ],
)
def test_another_header_is_refused(header: str, said: str) -> None:
    with pytest.raises(UnknownHeader, match=said):
        PMS_CSV.read(header.encode())


def test_the_older_header_is_taken_with_its_bom() -> None:
    data = FILE.read_bytes()
    assert data.startswith(BOM)
    rows = PMS_CSV.read(data)
    assert len(rows) == 2_851
    assert all(row.body for row in rows)


def test_a_repeated_column_must_have_equal_values() -> None:
    lines = FILE.read_bytes().split(b"\n")[:2]
    spoiled = lines[1].replace(b",6,269,6,", b",6,269,7,")
    (row,) = PMS_CSV.read(b"\n".join((lines[0], spoiled)))
    assert row.body is None


def test_the_real_file_has_eleven_rows_that_are_no_readings() -> None:
    rows = PMS_CSV.read(FILE.read_bytes())
    raw = raw_batch([msgspec.json.encode(row.body) for row in rows])
    found = pms.DATASET.validate(raw)
    assert len(found.good) == 2_840
    assert [rows[each.row].line for each in found.refused] == list(range(1_477, 1_488))
    for refused in found.refused:
        assert [each.path for each in refused.reasons] == [
            f"pack.cell.volts[{at}]" for at in range(14)
        ]
        assert {each.rule for each in refused.reasons} == {"range.above"}
    assert not pms.DATASET.validate(raw, ranges=False).refused


def test_every_wrong_cell_of_a_row_is_told_with_its_column() -> None:
    header = ",".join(reversed(PMS_CSV.columns))
    bad = line(pack__amps="n/a", cell__volts__9="", cell__open__1="2", pms_id="")
    reversed_bad = ",".join(reversed(bad.split(",")))
    (row,) = PMS_CSV.read(f"{header}\n{reversed_bad}\n".encode())
    assert row.body is None
    kind = csv_type(row.columns, PMS_CSV.columns)
    batch = raw_batch([row.raw], headers=[{"content-type": kind}])
    (refused,) = pms.DATASET.validate(batch).refused
    assert sorted((each.path, each.rule, each.value) for each in refused.reasons) == [
        ("cell.open.1", "csv.flag", "2"),
        ("cell.volts.9", "type.number", ""),
        ("pack.amps", "type.number", "n/a"),
        ("pms_id", "csv.empty", ""),
    ]


def test_a_row_that_is_wrong_as_a_whole_says_how() -> None:
    wrong = PMS_CSV.wrong(b"1,2", PMS_CSV.columns)
    assert wrong == [("", "csv.row", f"2 cells under {len(PMS_CSV.columns)} columns: 1,2")]
    assert PMS_CSV.wrong(b"\xff", PMS_CSV.columns) == [("", "csv.row", "\ufffd")]
    assert PMS_CSV.wrong(line().encode(), PMS_CSV.columns)[0].rule == "csv.row"
    twice = (*PMS_CSV.columns, "pack.dock")
    assert PMS_CSV.wrong(f"{line()},7".encode(), twice) == [("pack.dock", "csv.repeated", "7")]


def test_the_usual_order_of_columns_needs_no_words() -> None:
    assert csv_type(PMS_CSV.columns, PMS_CSV.columns) == "text/csv"
    assert csv_columns("text/csv", ("a", "b")) == ["a", "b"]
    assert csv_columns(csv_type(("b", "a"), ("a", "b")), ("a", "b")) == ["b", "a"]
