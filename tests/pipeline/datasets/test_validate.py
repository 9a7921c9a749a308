import random

import duckdb
import pyarrow as pa
import pytest

from penstock.pipeline.datasets import fast, pms
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.datasets.shape import Group, Numbers, Shape, Text, Time
from penstock.pipeline.datasets.strict import Judge, Reason
from penstock.pipeline.datasets.validate import Validator
from tests.pipeline.datasets import bodies

VALIDATOR = Validator(pms.SHAPE)


def test_good_and_bad_rows_are_split_and_keep_their_numbers() -> None:
    right = bodies.encoded(bodies.pms())
    found = VALIDATOR.validate(raw_batch([right, b"x", right, None]))
    assert found.good.column("_row").to_pylist() == [0, 2]
    assert [(each.row, each.reasons[0].rule) for each in found.refused] == [
        (1, "json"), (3, "body.missing"),
    ]  # fmt: skip


def test_what_only_the_judge_takes_comes_back_in_its_place() -> None:
    right = bodies.encoded(bodies.pms())
    escaped = right.replace(b"PMS-01-001", b"PMS\\u002d02")
    found = VALIDATOR.validate(raw_batch([right, escaped, b"x", right]))
    assert found.good.column("pms_id").to_pylist() == ["PMS-01-001", "PMS-02", "PMS-01-001"]
    assert found.good.column("_row").to_pylist() == [0, 1, 3]
    assert [each.row for each in found.refused] == [2]


def test_when_the_fast_parser_fails_the_judge_reads_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = bodies.encoded(bodies.pms())
    given = raw_batch([right, b"x", right, None])
    wanted = VALIDATOR.validate(given)

    def fails(*_: object) -> None:
        raise duckdb.OutOfMemoryException("there is no more")

    with monkeypatch.context() as patch:
        patch.setattr(fast, "_duck", fails)
        found = VALIDATOR.validate(given)
        assert len(VALIDATOR.validate(raw_batch([b"x"])).good) == 0
    assert found.good.equals(wanted.good)
    assert found.refused == wanted.refused
    assert "the fast parser failed" in caplog.text
    assert VALIDATOR.validate(given).good.equals(wanted.good), "a new parser takes over"


@pytest.mark.parametrize(
    ("key", "again"),
    [
        ("pms_id", b'{"pms_id":"x",'), ("status.code", b'"status":{"code":"0001",'),
        ("time_local", b'{"time_local":"20200210T150006Z",'),
        ("pack.amps", b'"pack":{"amps":-0.625,'),
        ("pack.cell.open", b'"cell":{"open":[],'), ("pack", b'{"pack":null,'),
        ("pack.fet.temp", b'"fet":{"t\\u0065mp":[1,2],'),
    ],
)  # fmt: skip
def test_a_key_that_is_repeated_anywhere_is_refused(key: str, again: bytes) -> None:
    right = bodies.encoded(bodies.pms())
    start = again[: again.index(b"{") + 1]
    wrong = right.replace(start, again, 1)
    assert len(wrong) > len(right)
    found = VALIDATOR.validate(raw_batch([right, wrong, right]))
    assert found.good.column("_row").to_pylist() == [0, 2]
    ((row, reasons),) = found.refused
    assert row == 1
    assert [(each.path, each.rule) for each in reasons] == [(key, "key.duplicate")]
    assert not fast.parse(pms.SHAPE, pa.array([wrong], pa.binary())).is_sure.any()


def test_large_numbers_are_read_alike_by_both_parsers_and_are_no_matter_of_ranges() -> None:
    for number in (1e7, 123456789012345.678, 2**53 + 1, 10**30, 1e100, -1e100, 5e-324):
        given = raw_batch([bodies.encoded(bodies.pms(pack__amps=number))])
        (value,) = VALIDATOR.validate(given).good.column("pack.amps").to_pylist()
        assert value == float(number)
        judged = Judge(pms.SHAPE).judge(given.column("body")[0].as_py())
        assert isinstance(judged, dict)
        assert judged["pack.amps"] == value
    for number in (2**31, 2**53 + 1, 2**63 - 1, -(2**63) + 1):
        given = raw_batch([bodies.encoded(bodies.pms(pack__dock=number))])
        assert VALIDATOR.validate(given).refused
        found = VALIDATOR.validate(given, ranges=False)
        assert found.good.column("pack.dock").to_pylist() == [number]
        assert pms.DATASET.transform(found.good).column("pack")[0]["dock"].as_py() == number


def test_cells_as_far_apart_as_they_may_be_fit_their_column() -> None:
    cells = [-1e6, 1e6, *[0.0] * 12]
    given = raw_batch([bodies.encoded(bodies.pms(pack__cell__volts=cells, pack__amps=1e100))])
    found = VALIDATOR.validate(given, ranges=False)
    (row,) = pms.DATASET.transform(found.good).to_pylist()
    assert [each["dvcl"] for each in row["cell"]][:3] == [0, 2_000_000_000, 1_000_000_000]
    assert row["pack"]["watts"] == 0.0


def test_lists_longer_than_most_are_read_alike_by_both_parsers() -> None:
    shape = Shape(Group(time_local=Time(), wave=Numbers(1, 3_000)))
    body = bodies.encoded({"time_local": "20200210T150006Z", "wave": [0.5] * 2_000})
    found = Validator(shape).validate(raw_batch([body, body + b" " * 70_000]))
    assert [len(each) for each in found.good.column("wave").to_pylist()] == [2_000, 2_000]
    long = bodies.encoded({"time_local": "20200210T150006Z", "wave": [0.5] * 3_001})
    assert Validator(shape).validate(raw_batch([long])).refused[0].reasons[0].rule == "length"


def test_a_csv_row_is_refused_as_such() -> None:
    right = bodies.encoded(bodies.pms())
    batch = raw_batch([right, b"25,48.3,x"], headers=[None, {"content-type": "text/csv"}])
    (refused,) = VALIDATOR.validate(batch).refused
    assert refused.reasons == (Reason("", "csv.row", "25,48.3,x"),)


@pytest.mark.parametrize("ranges", [True, False])
def test_good_plus_refused_is_what_the_judge_says(ranges: bool) -> None:
    draw = random.Random(9)
    given = [bodies.spoiled(draw, bodies.drawn_pms(draw)) for _ in range(1_500)]
    judge = Judge(pms.SHAPE)
    found = VALIDATOR.validate(raw_batch(given), ranges=ranges)
    verdicts = [judge.judge(each, ranges=ranges) for each in given]
    good = [row for row, each in enumerate(verdicts) if isinstance(each, dict)]
    assert found.good.column("_row").to_pylist() == good
    assert {each.row: list(each.reasons) for each in found.refused} == {
        row: each for row, each in enumerate(verdicts) if isinstance(each, list)
    }
    for name in ("pack.amps", "pack.dock", "pack.cell.volts", "pack.fet.open", "status.code"):
        expected = [each[name] for each in verdicts if isinstance(each, dict)]
        assert found.good.column(name).to_pylist() == expected


def test_zero_has_no_sign() -> None:
    body = bodies.encoded(bodies.pms(pack__amps=-0.0))
    good = VALIDATOR.validate(raw_batch([body])).good
    assert str(good.column("pack.amps")[0].as_py()) == "0.0"


def test_an_empty_batch_has_all_columns() -> None:
    found = VALIDATOR.validate(raw_batch([]))
    assert len(found.good) == 0
    assert found.good.schema.field("pack.cell.volts").type == pa.list_(pa.float64())


def test_a_shape_needs_its_time() -> None:
    with pytest.raises(AssertionError, match="time_local"):
        Validator(Shape(Group(a=Text())))
