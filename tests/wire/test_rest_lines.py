import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch
from penstock.vocabulary.errors import InvalidArgument, TooLarge, UsageError
from penstock.vocabulary.limits import BATCH_BYTES_MAX, MIB
from penstock.wire.rest_lines import Bulk, _one_by_one, bulk, pack, read_lines

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "body": TEXT, "key": TEXT, "id": TEXT.filter(bool),
        "headers": st.dictionaries(TEXT, TEXT, max_size=3),
        "priority": st.integers(-32768, 32767), "delay_s": st.integers(0, 1000),
    },
)  # fmt: skip


def said(rows: list[Any], *, is_ascii: bool = True) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=is_ascii) for row in rows).encode()


def rows_of(found: Bulk) -> list[tuple[Any, ...]]:
    rows: list[Any] = [None] * found.count
    for parcel in pack(found, 1, 0):
        columns = Batch(parcel.batch).columns()
        names = ("bodies", "keys", "ids", "headers", "priorities", "deliver_at", "expires_at")
        for at, index in enumerate(parcel.indexes):
            values = [getattr(columns, name) for name in names]
            rows[index] = tuple(None if v is None else v[at] or None for v in values)
    return rows


@given(st.lists(LINES, min_size=1, max_size=8), st.booleans())
def test_the_fast_way_says_what_the_slow_way_says(
    rows: list[dict[str, Any]], is_ascii: bool
) -> None:
    data = said(rows, is_ascii=is_ascii)
    slow = bulk([fields for _, fields in _one_by_one(data, 1000)], len(data))
    assert rows_of(read_lines(data, 1000)) == rows_of(slow)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_a_json_value_is_stored_as_it_was_written(values: list[Any]) -> None:
    found = read_lines(said([{"json": value} for value in values]), 0)
    assert [json.loads(body or b"") for body in found.columns.bodies] == values


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_a_clear_error(data: bytes) -> None:
    try:
        assert read_lines(data, 0).count
        text = "line"
    except UsageError as error:
        text = error.text
    assert "line" in text or "no message" in text


def test_blank_lines_mean_nothing() -> None:
    assert read_lines(b'{"body":"a"}\n\n\r\n{"body":"b"}\r\n', 0).columns.bodies == [b"a", b"b"]


def test_bytes_come_as_base64() -> None:
    columns = read_lines(b'{"body_base64":"/w==","key_base64":"/g=="}', 0).columns
    assert (columns.bodies, columns.keys) == ([b"\xff"], [b"\xfe"])


def test_a_line_without_a_body_has_none() -> None:
    assert read_lines(b'{"key":"k"}\n{"body":""}', 0).columns.bodies == [None, b""]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"body":1}', "line 3 does not fit: body must be text"),
        ('{"bodi":"x"}', "there is no field bodi; did you mean body"),
        ('{"body":"x","body":"y"}', "'body' twice"),
        ('{"body":"x","bod\\u0079":"y"}', "'body' twice"),
        ('{"json":{"a":1,"a":2}}', "'a' twice"),
        ('{"headers":{"a":"1","a":"2"}}', "'a' twice"),
        ('{"headers":{"a":1}}', "headers"),
        ('{"json":NaN}', "NaN"),
        ('{"body":"x","json":1}', "body and json"),
        ('{"priority":1.5}', "priority"),
        ('{"priority":40000}', "priority 40000"),
        ('{"key":"k","key_base64":"aw=="}', "either key or key_base64"),
        ('{"body_base64":"?"}', "not base64"),
        ('{"delay_s":1,"deliver_at":2}', "either deliver_at or delay_s"),
        ('{"delay_s":-1}', "delay_s"),
        ('{"ttl_s":1e300}', "ttl_s"),
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ('{"json":' + "[" * 80 + "]" * 80 + "}", "deeper"),
        ('{"id":""}', "id must not be empty"),
        ('{"id":"' + "i" * 300 + '"}', "id of 300 bytes"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_made_of_the_others(line: str, why: str) -> None:
    with pytest.raises((InvalidArgument, TooLarge), match=why) as caught:
        read_lines(b'{"body":"good"}\n\n' + line.encode(), 0)
    assert "line 3" in str(caught.value)


def test_nothing_is_not_many() -> None:
    with pytest.raises(InvalidArgument, match="no message"):
        read_lines(b"\n\n", 0)


def test_keys_choose_the_partition_and_keep_their_order() -> None:
    found = read_lines(said([{"body": str(n), "key": f"k{n % 5}"} for n in range(100)]), 0)
    parcels = pack(found, 3, 1)
    assert sorted(i for parcel in parcels for i in parcel.indexes) == list(range(100))
    for parcel in parcels:
        view = Batch(parcel.batch)
        assert view.key_hashes is not None
        assert {h % 3 for h in view.key_hashes} == {parcel.partition}
        assert list(parcel.indexes) == sorted(parcel.indexes)
        assert view.bodies == [str(index).encode() for index in parcel.indexes]


def test_messages_without_a_key_stay_together() -> None:
    (parcel,) = pack(read_lines(said([{"body": "x"}] * 10), 0), 4, 6)
    assert parcel.partition == 2


def test_large_batches_are_cut() -> None:
    found = read_lines(said([{"body": "x" * (MIB // 2)}] * 20), 0)
    parcels = pack(found, 1, 0)
    assert len(parcels) > 5
    assert all(len(parcel.batch) <= BATCH_BYTES_MAX for parcel in parcels)
    assert [i for parcel in parcels for i in parcel.indexes] == list(range(20))
