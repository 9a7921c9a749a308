"""Receipts are made when looked at, from what the broker said about each batch."""

from penstock.client.receipts import Parcel, Receipts, Sent
from penstock.vocabulary.message import Durability, Message, render_id
from penstock.vocabulary.stored import Stored

PUBLISHER = b"\2" * 16


def sent(partition: int, indexes: list[int], base: int | None, **more: object) -> Sent:
    stored = Stored(base, Durability.SYNCED, bool(more.get("duplicate")), more.get("kept"))  # type: ignore[arg-type]
    return Sent(Parcel(partition, b"", indexes), PUBLISHER, 3, 100, stored)


def test_one_batch_numbers_its_messages() -> None:
    receipts = Receipts("t", [b"a", Message(body=b"b", id="mine")], [sent(0, [0, 1], 7)])
    assert [r.offset for r in receipts] == [7, 8]
    assert [r.position for r in receipts] == ["0:7", "0:8"]
    assert [r.id for r in receipts] == [render_id(PUBLISHER, 3, 100), "mine"]
    assert receipts[-1] == receipts[1]
    assert receipts[0:1] == [receipts[0]]
    assert len(receipts) == 2


def test_batches_of_several_partitions_are_put_in_the_order_of_the_list() -> None:
    receipts = Receipts("t", [b""] * 4, [sent(1, [0, 3], 10), sent(0, [1, 2], 20)])
    assert [(r.partition, r.offset) for r in receipts] == [(1, 10), (0, 20), (0, 21), (1, 11)]


def test_duplicates_are_listed_whole_or_in_part() -> None:
    part = sent(0, [0, 2, 4], 5, kept=(1, 2))
    whole = sent(1, [1, 3], None, duplicate=True)
    receipts = Receipts("t", [b""] * 5, [part, whole])
    assert receipts.duplicates == [0, 1, 3]
    assert [r.duplicate for r in receipts] == [True, True, False, True, False]
    assert [r.offset for r in receipts] == [None, None, 5, None, 6]
    assert receipts[0].position == ""


def test_a_duplicate_is_where_it_was_stored_first_when_that_is_known() -> None:
    part = Stored(5, Durability.SYNCED, is_duplicate=False, kept=(1,), places={0: 3})
    whole = Stored(None, Durability.SYNCED, is_duplicate=True, places={1: 9})
    batches = [
        Sent(Parcel(0, b"", [0, 2]), PUBLISHER, 3, 100, part),
        Sent(Parcel(1, b"", [1, 3]), PUBLISHER, 3, 100, whole),
    ]
    receipts = Receipts("t", [b""] * 4, batches)
    assert [r.offset for r in receipts] == [3, None, 5, 9]
    assert [r.duplicate for r in receipts] == [True, True, False, True]


def test_no_messages_have_no_receipts() -> None:
    assert list(Receipts("t", (), [])) == []
