import random

import pyarrow as pa

from penstock.pipeline import work
from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch
from penstock.vocabulary.limits import MIB
from tests.pipeline.datasets import bodies


def given(count: int, seed: int = 1) -> list[bytes]:
    draw = random.Random(seed)
    return [bodies.spoiled(draw, bodies.drawn_pms(draw)) for _ in range(count)]


def test_every_message_is_good_or_quarantined() -> None:
    raws = [raw_batch(given(300), partition=1), raw_batch(given(200, 2), partition=2)]
    checked = work.check(pms.DATASET, raws)
    made = work.make(pms.DATASET, checked.good)
    assert checked.read == 500 == len(made.rows) + len(checked.quarantined)
    assert len(made.marks.moment) == len(made.rows)
    assert set(made.rows.column("_partition").to_pylist()) == {1, 2}


def test_how_messages_are_cut_into_batches_changes_nothing() -> None:
    data = given(1_000)
    whole = raw_batch(data)
    small = [whole.slice(at, 7) for at in range(0, 1_000, 7)]
    one, other = (work.check(pms.DATASET, raws) for raws in ([whole], small))
    assert one.quarantined == other.quarantined
    assert one.events.equals(other.events)
    rows = [work.make(pms.DATASET, each.good).rows for each in (one, other)]
    assert rows[0].equals(rows[1])


def test_a_quarantined_message_keeps_its_bytes_and_where_it_came_from() -> None:
    raw = raw_batch(
        [b"x"], ids=["m"], partition=3, offsets=[9], published_ms=5,
        headers=[{"source": "site", "content-type": "text/plain"}],
    )  # fmt: skip
    (one,) = work.check(pms.DATASET, [raw]).quarantined
    assert (one.partition, one.offset, one.id, one.body, one.sender) == (3, 9, "m", b"x", "site")
    assert (one.content_type, one.received, one.stage) == ("text/plain", 5_000, "validate")
    assert one.reasons[0].rule == "json"


def test_large_batches_are_cut_and_small_ones_joined() -> None:
    whole = raw_batch([b"x"] * 90_000)
    assert [len(each) for each in work.coalesced([whole])] == [30_000] * 3
    small = whole.slice(0, 10)
    found = list(work.coalesced([small, whole.slice(10, 6_000), whole.slice(0, 8_000), small]))
    assert [len(each) for each in found] == [14_020]
    assert [len(each) for each in work.coalesced([whole.slice(0, 40_000), small])] == [40_000, 10]
    parts = [whole.slice(at, 1_000) for at in range(0, 90_000, 1_000)]
    assert [len(each) for each in work.coalesced(parts)] == [40_000, 40_000, 10_000]


def test_long_messages_are_worked_on_in_smaller_parts() -> None:
    long = raw_batch([b"x" * MIB] * 40)
    for given in ([long], [long.slice(at, 1) for at in range(40)]):
        parts = list(work.coalesced(given))
        assert sum(map(len, parts)) == 40
        assert all(each.nbytes <= work.BYTES_AT_ONCE + 2 * MIB for each in parts)
        assert min(map(len, parts)) > 4
    mixed = raw_batch([*[b"x"] * 10_000, b"x" * 20 * MIB, *[b"x"] * 10_000])
    parts = list(work.coalesced([mixed]))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([mixed]))
    assert max(each.nbytes for each in parts) < 21 * MIB


def test_nothing_gives_nothing() -> None:
    checked = work.check(pms.DATASET, [])
    made = work.make(pms.DATASET, checked.good)
    assert (checked.read, len(made.rows), len(checked.events)) == (0, 0, 0)
    assert pa.types.is_int64(made.rows.schema.field("_offset").type)


def test_pieces_are_about_as_large_as_asked_and_keep_the_order() -> None:
    raws = [raw_batch([b"x"] * size) for size in (3, 4, 10, 1)]
    found = [[len(raw) for raw in piece] for piece in work.pieces(iter(raws), 5)]
    assert found == [[3, 4], [10], [1]]
    assert list(work.pieces([], 5)) == []
    long = raw_batch([b"x" * work.BYTES_IN_PIECE])
    assert [len(piece) for piece in work.pieces([raws[0], long, raws[0]], 100)] == [2, 1]
