import random

import pyarrow as pa
import pytest

from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.datasets.shape import Group, Shape, Text
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
