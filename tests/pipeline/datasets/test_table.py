import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.pipeline.datasets import mppt, pms, table, trying
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.datasets import bodies


def pms_rows(count: int = 200) -> pa.RecordBatch:
    draw = random.Random(5)
    given = [bodies.encoded(bodies.drawn_pms(draw)) for _ in range(count)]
    return pms.DATASET.transform(pms.DATASET.validate(raw_batch(given)).good)


def mppt_rows(panels: list[int]) -> pa.RecordBatch:
    given = [
        bodies.encoded(bodies.mppt(pv__volts=[48.0] * each, pv__amps=[1.5] * each))
        for each in panels
    ]
    return mppt.DATASET.transform(mppt.DATASET.validate(raw_batch(given)).good)


def test_a_hash_does_not_depend_on_the_rows_beside_it() -> None:
    mixed = table.hashes(mppt_rows([1, 2, 4, 2]))
    for row, panels in enumerate([1, 2, 4, 2]):
        assert table.hashes(mppt_rows([panels])).tolist() == [mixed[row].tolist()]
    assert mixed[1].tolist() == mixed[3].tolist()
    assert len({tuple(each) for each in mixed.tolist()}) == 3


def test_a_hash_covers_every_column_but_sender_and_processing_time() -> None:
    rows = pms_rows(1)
    (plain,) = table.hashes(rows).tolist()
    for name in rows.schema.names:
        column = rows.column(name)
        other = pms_rows(50).column(name)
        different = next((each for each in other if each != column[0]), None)
        if different is None:
            continue
        changed = rows.set_column(
            rows.schema.get_field_index(name), rows.schema.field(name),
            pa.array([different.as_py()], column.type),
        )  # fmt: skip
        is_same = table.hashes(changed).tolist() == [plain]
        assert is_same == (name in table.NOT_CONTENT), name


def test_a_table_in_chunks_has_the_hashes_of_its_rows() -> None:
    rows = pms_rows()
    chunked = pa.Table.from_batches([rows.slice(0, 70), rows.slice(70)])
    assert table.hashes(chunked).tolist() == table.hashes(rows).tolist()
    assert len(table.hashes(rows.slice(0, 0))) == 0


def test_missing_values_and_lists_in_lists_have_hashes_of_their_own() -> None:
    kind = pa.list_(pa.list_(pa.int64()))
    rows = pa.record_batch(
        {
            "a": pa.array([1, None, -(2**62)], pa.int64()),
            "t": pa.array(["x", None, ""]),
            "b": pa.array([True, None, False]),
            "n": pa.array([[[1]], [[2]], [[1]]], kind),
        }
    )
    assert len({tuple(each) for each in table.hashes(rows).tolist()}) == 3
    (alone,) = table.hashes(rows.slice(1, 1)).tolist()
    assert alone == table.hashes(rows)[1].tolist()


def test_every_kind_of_value_that_a_table_may_hold_has_hashes() -> None:
    kinds = [*trying.PLAIN, pa.decimal128(20, 4)]
    for kind in [*kinds, *map(pa.list_, kinds), pa.list_(pa.struct([("x", pa.binary())]))]:
        assert trying._odd(kind) is None
        one, other = (_value(kind, number) for number in (1, 0))
        rows = pa.record_batch({"x": pa.array([one, other, None, one], kind)})
        first, second, third, fourth = map(tuple, table.hashes(rows).tolist())
        assert first == fourth
        assert len({first, second, third}) == 3, kind


def _value(kind: pa.DataType, number: int) -> Any:
    """One of two values of a kind."""
    if pa.types.is_list(kind):
        return [_value(kind.value_type, number)] * 2
    if pa.types.is_struct(kind):
        return {"x": b"%d" % number}
    if pa.types.is_decimal(kind):
        return Decimal(f"{number}.0001")
    if kind in (pa.string(), pa.binary()):
        return str(number) if kind == pa.string() else b"%d" % number
    return pa.scalar(number, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind).as_py()


def test_rows_are_sorted_by_device_pack_and_time() -> None:
    rows = pms_rows()
    ordered = rows.take(table.in_order(rows, ("pms_id", "pack_id")))
    keys = list(
        zip(*(ordered.column(name).to_pylist() for name in ("pms_id", "pack_id", "time_event")),
            strict=True)
    )  # fmt: skip
    assert keys == sorted(keys)


def test_the_day_is_the_utc_day() -> None:
    stamps = pa.array([-1, 0, 86_400_000_000 - 1, 86_400_000_000]).cast(pa.timestamp("us", "UTC"))
    assert [each.isoformat() for each in table.days(stamps).to_pylist()] == [
        "1969-12-31", "1970-01-01", "1970-01-01", "1970-01-02",
    ]  # fmt: skip


def test_membership_of_lists_ignores_what_is_outside() -> None:
    found = table.is_in(pa.array([[1, 3], [], [9, 0, 2]], pa.list_(pa.int64())), 3)
    assert found.tolist() == [[True, False, True], [False] * 3, [False, True, False]]


def test_rows_in_another_order_are_the_same_rows() -> None:
    for rows in (pms_rows(), mppt_rows([1, 2, 4, 2])):
        given = pa.Table.from_batches([rows])
        order = np.random.default_rng(3).permutation(len(given))
        assert table.taken(given, order).equals(given.take(pa.array(order)))
    none = given.slice(0, 0)
    assert table.taken(none, np.zeros(0, np.int64)).equals(none)


def test_lists_of_every_kind_are_moved_whole() -> None:
    flags = pa.struct([("on", pa.bool_()), ("name", pa.string()), ("number", pa.int32())])
    one = {"on": True, "name": "a", "number": 1}
    other = {"on": False, "name": "b", "number": 2}
    given = pa.table(
        {
            "even": pa.array([[one, other], [other, one], [one, one]], pa.list_(flags)),
            "uneven": pa.array([[one], [], [other, one]], pa.list_(flags)),
            "empty": pa.array([[], [], []], pa.list_(pa.float64())),
            "inner": pa.array([[[1], []], [[], [2]], [[3], [4]]], pa.list_(pa.list_(pa.int64()))),
            "missing": pa.array([[1.0, None], [2.0, 3.0], [None, 4.0]], pa.list_(pa.float64())),
        }
    )
    order = np.array([2, 0, 1])
    assert table.taken(given, order).equals(given.take(pa.array(order)))
