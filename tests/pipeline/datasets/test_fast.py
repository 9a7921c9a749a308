"""The fast parser is sure only of what the strict judge takes, with the same values."""

import json
import random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.pipeline.datasets import fast, inverter, mppt, pms
from penstock.pipeline.datasets.shape import Shape
from penstock.pipeline.datasets.strict import Judge
from tests.pipeline.datasets import bodies

SHAPES = {"pms": pms.SHAPE, "mppt": mppt.SHAPE, "inverter": inverter.SHAPE}


class Repeated(ValueError):
    pass


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Repeated
    return dict(pairs)


def takes_shape(judge: Judge, data: bytes) -> bool:
    """msgspec, strictly, with unknown keys forbidden, and no key twice: nothing of ours."""
    try:
        judge._decoder.decode(data)
        json.loads(data, object_pairs_hook=no_repeats)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def drawn(name: str, seed: int, count: int) -> list[bytes]:
    draw = random.Random(seed)
    make = {"pms": lambda: bodies.drawn_pms(draw), "mppt": bodies.mppt, "inverter": bodies.inverter}
    return [bodies.spoiled(draw, make[name]()) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SHAPES)
def test_verdicts_and_values_equal_the_strict_judge(name: str, seed: int) -> None:
    shape, judge = SHAPES[name], Judge(SHAPES[name])
    given = drawn(name, seed, 2_000)
    ranges = seed != 3
    parsed = fast.parse(shape, pa.array(given, pa.binary()), ranges=ranges)
    sure = 0
    for row, data in enumerate(given):
        found = judge.judge(data, ranges=ranges)
        if isinstance(found, dict):
            assert takes_shape(judge, data), data
        elif all(each.rule.startswith(("type", "key", "json")) for each in found):
            assert not takes_shape(judge, data) or _has_null(data), (data, found)
        if parsed.is_sure[row]:
            sure += 1
            assert isinstance(found, dict), (data, found)
            assert _values(shape, parsed, row) == found, data
    assert sure > 100


def _has_null(data: bytes) -> bool:
    return b"null" in data


def _values(shape: Shape, parsed: fast.Parsed, row: int) -> dict[str, Any]:
    values = {path: parsed.columns[path][row].as_py() for path, _ in shape.leaves}
    offset = parsed.columns["time_local.offset"][row].as_py()
    return values | {"time_local": (values["time_local"], offset)}


def test_right_bodies_are_all_sure_however_they_are_spelled() -> None:
    draw = random.Random(1)
    given = [bodies.drawn_pms(draw) for _ in range(500)]
    spelled = [json.dumps(each, indent=draw.choice([None, 2])).encode() for each in given]
    assert fast.parse(pms.SHAPE, pa.array(spelled, pa.binary())).is_sure.all()


def test_marks_inside_texts_are_expected() -> None:
    given = [bodies.encoded(bodies.pms(pms_id="bus:7,true", pack__id="usual"))] * 3
    assert fast.parse(pms.SHAPE, pa.array(given, pa.binary())).is_sure.all()


@pytest.mark.parametrize(
    "change",
    [
        (b'"amps":-0.625', b'"amps":"-0.625"'),
        (b'"amps":-0.625', b'"amps":true'),
        (b'"amps":-0.625', b'"amps":NaN'),
        (b'"dock":1', b'"dock":1.0'),
        (b'"dock":1', b'"dock":1,"dock":1'),
        (b'"dock":1', b'"dock":1,"more":1'),
        (b"[34.1,32.2]", b"[34.1,32.2,]"),
        (b"[34.1,32.2]", b'[34.1,"32.2"]'),
        (b"[34.1,32.2]", b"[34.1,false]"),
        (b'"id":"0241"', b'"id":241'),
    ],
)
def test_what_the_parser_takes_and_should_not_is_not_sure(change: tuple[bytes, bytes]) -> None:
    right = bodies.encoded(bodies.pms())
    wrong = right.replace(*change)
    assert wrong != right
    parsed = fast.parse(pms.SHAPE, pa.array([right, wrong, right], pa.binary()))
    assert parsed.is_sure.tolist() == [True, False, True]
    # A row with a text too few must not make up for one with a text too many.
    less = right.replace(b'"id":"0241"', b'"id":241')
    parsed = fast.parse(pms.SHAPE, pa.array([less, wrong], pa.binary()))
    assert parsed.is_sure.tolist() == [False, False]


def test_no_bodies_absent_bodies_and_huge_bodies() -> None:
    assert fast.parse(pms.SHAPE, pa.array([], pa.binary())).is_sure.tolist() == []
    right = bodies.encoded(bodies.pms())
    huge = right + b" " * 1_000_000
    parsed = fast.parse(pms.SHAPE, pa.array([None, right, huge, b"\xff"], pa.binary()))
    assert parsed.is_sure.tolist() == [False, True, False, False]
