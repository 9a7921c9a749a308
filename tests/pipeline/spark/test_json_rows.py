"""JSON bodies as the columns of a schema."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.reader import ReadBatch
from penstock.pipeline.spark import json_rows
from penstock.vocabulary.errors import BodyDoesNotFit, InvalidArgument
from tests.pipeline.lane import Lane

STAMP = pa.timestamp("us", "UTC")
ORDER = pa.schema(
    [
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("_offset", pa.int64()),
        ("_corrupt_record", pa.string()),
    ]
)


def _decoded(kind: pa.DataType, *values: str) -> tuple[list[Any], dict[int, str]]:
    row = pa.struct([("a", kind)])
    decoder = msgspec.json.Decoder(json_rows.type_of(row, "body"))
    found, wrong = json_rows.decoded([f'{{"a": {each}}}'.encode() for each in values], row, decoder)
    return [each["a"] for each in found.to_pylist()], wrong


UTC = dt.UTC
DEEP = pa.struct([("x", pa.list_(pa.struct([("y", pa.int32())])))])


@pytest.mark.parametrize(
    ("kind", "right", "wanted", "wrong"),
    [
        (pa.string(), ['"x"', "null"], ["x", None], ["1", "true", "[]", '"\\ud800"']),
        (pa.bool_(), ["true", "false"], [True, False], ["1", '"true"']),
        (pa.int8(), ["127", "-128"], [127, -128], ["128", "1.0", '"1"', "true"]),
        (pa.int64(), [str(2**63 - 1)], [2**63 - 1], [str(2**63), "1e3"]),
        (pa.float64(), ["1", "1.5", "-2e3"], [1.0, 1.5, -2000.0], ["NaN", "Infinity", "1e400"]),
        (pa.float32(), ["0.5"], [0.5], ["1e39", '"0.5"']),
        (pa.decimal128(5, 2), ["1.5", "2"], [Decimal("1.50"), Decimal(2)], ["1.555", "12345"]),
        (pa.binary(), ['"eA=="'], [b"x"], ['"?"']),
        (pa.date32(), ['"2020-01-02"'], [dt.date(2020, 1, 2)], ['"2020-01-32"', "5"]),
        (
            STAMP,
            ['"2020-01-02T03:04:05+07:00"', '"2020-01-02 03:04:05.5Z"'],
            [
                dt.datetime(2020, 1, 1, 20, 4, 5, tzinfo=UTC),
                dt.datetime(2020, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC),
            ],
            ['"2020-01-02T03:04:05"', "5"],
        ),
        (
            pa.timestamp("us"),
            ['"2020-01-02T03:04:05"'],
            [dt.datetime(2020, 1, 2, 3, 4, 5)],  # noqa: DTZ001 - it has no zone
            ['"2020-01-02T03:04:05Z"'],
        ),
        (pa.list_(pa.int32()), ["[1, null]", "[]"], [[1, None], []], ["1", '["1"]']),
        (DEEP, ['{"x": [{"y": 1, "z": 2}, {}]}'], [{"x": [{"y": 1}, {"y": None}]}], ['{"x": {}}']),
        (pa.map_(pa.string(), pa.int32()), ['{"k": 1}'], [[("k", 1)]], ['{"k": "1"}', "[]"]),
    ],
)
def test_values_are_taken_as_they_are_or_not_at_all(
    kind: pa.DataType, right: list[str], wanted: list[Any], wrong: list[str]
) -> None:
    assert _decoded(kind, *right) == (wanted, {})
    found, why = _decoded(kind, right[0], *wrong, right[0])
    assert found == [wanted[0], *[None] * len(wrong), wanted[0]], "others are not touched"
    assert list(why) == list(range(1, len(wrong) + 1))


@pytest.mark.parametrize(
    "body",
    [
        None, b"", b" ", b"null", b"1", b"[1]", b'{"a": 1', b'{"a": 1} {"a": 2}', b"\xff",
        b"[" * 99_999,
    ],
)  # fmt: skip
def test_what_is_no_object_does_not_fit(body: bytes | None) -> None:
    row = pa.struct([("a", pa.int32())])
    decoder = msgspec.json.Decoder(json_rows.type_of(row, "body"))
    found, wrong = json_rows.decoded([b"{}", body], row, decoder)
    assert (found.to_pylist(), list(wrong)) == ([{"a": None}, {"a": None}], [1])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(JSON, max_size=6))
def test_each_body_is_judged_as_if_it_were_alone(values: list[Any]) -> None:
    row = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", DEEP)])
    decoder = msgspec.json.Decoder(json_rows.type_of(row, "body"))
    bodies = [json.dumps(each, indent=1).encode() for each in values]
    together, wrong = json_rows.decoded(bodies, row, decoder)
    alone = [json_rows.decoded([each], row, decoder) for each in bodies]
    assert together.to_pylist() == [found.to_pylist()[0] for found, _ in alone]
    assert set(wrong) == {at for at, (_, why) in enumerate(alone) if why}
    for at, (value, found) in enumerate(zip(values, together.to_pylist(), strict=True)):
        if at not in wrong:
            assert all(found[name] == value.get(name) for name in "ab")


def _stored(lane: Lane, bodies: list[bytes | None]) -> list[ReadBatch]:
    lane.post(bodies)
    return lane.batches()


GIVEN: list[bytes | None] = [
    b'{"name": "a", "amount": 1, "tags": ["x"], "more": 1}', b"nonsense",
    b'{\n"name": "b"\n}', b'{"name": 1}', None,
]  # fmt: skip


def test_the_mode_says_what_becomes_of_a_body_that_does_not_fit(tmp_path: Path) -> None:
    batches = _stored(Lane(tmp_path), GIVEN)
    wanted = json_rows.layout(ORDER, "_corrupt_record")
    rows = [row for part in json_rows.parsed(batches, wanted) for row in part.to_pylist()]
    assert [tuple(row.values()) for row in rows] == [
        ("a", 1.0, ["x"], 0, None), (None, None, None, 1, "nonsense"), ("b", None, None, 2, None),
        (None, None, None, 3, '{"name": 1}'), (None, None, None, 4, ""),
    ]  # fmt: skip
    found = json_rows.parsed(batches, wanted, json_rows.DROP)
    kept = [row for part in found for row in part.to_pylist()]
    assert [(row["name"], row["_offset"], row["_corrupt_record"]) for row in kept] == [
        ("a", 0, None), ("b", 2, None),
    ]  # fmt: skip
    with pytest.raises(BodyDoesNotFit, match=r"message \S+ 0:1 does not fit .*'nonsense'"):
        list(json_rows.parsed(batches, wanted, json_rows.FAIL))


def test_a_schema_may_do_without_a_column_for_what_does_not_fit(tmp_path: Path) -> None:
    batches = _stored(Lane(tmp_path), GIVEN)
    wanted = json_rows.layout(pa.schema([("_body", pa.binary()), ("name", pa.string())]), "bad")
    rows = [row for part in json_rows.parsed(batches, wanted) for row in part.to_pylist()]
    assert [row["name"] for row in rows] == ["a", None, "b", None, None]
    assert [row["_body"] for row in rows] == GIVEN


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (pa.field("_offset", pa.int32()), "'_offset' is of the message and has the type int64"),
        (pa.field("bad", pa.binary()), "'bad' is of the message and has the type string"),
        (pa.field("a", pa.int32(), nullable=False), "'a' is NOT NULL"),
        (
            pa.field("a", pa.struct([pa.field("x", pa.int32(), nullable=False)])),
            "'a.x' is NOT NULL",
        ),
        (pa.field("a", pa.list_(pa.duration("us"))), r"'a\[\]' is of type duration"),
        (pa.field("a", pa.map_(pa.int32(), pa.int32())), "'a' is of type map"),
    ],
)
def test_a_schema_no_body_can_give_is_refused(field: pa.Field, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        json_rows.layout(pa.schema([field]), "bad")
