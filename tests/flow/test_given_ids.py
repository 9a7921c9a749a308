"""A given id is stored once within its window: at the broker, through crashes, for every caller."""

import asyncio
from pathlib import Path

import pytest

import penstock
from penstock.batch import Batch, encode_many, encode_one
from penstock.batch.frame import Frame
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal.memory import Op, Verb
from penstock.testing import MemoryBroker
from penstock.vocabulary import limits
from penstock.vocabulary.errors import MalformedBatch, StoreFailed
from penstock.vocabulary.message import Message
from penstock.vocabulary.records import Cause
from tests.broker.rig import GENERATED, Rig
from tests.flow.ids import OTHER, held, publish, submit


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.attach(credit=1, name="slow")
    return rig


# -- one id, one message -------------------------------------------------------------------------


def test_a_second_publish_of_an_id_is_answered_with_the_place_of_the_first(rig: Rig) -> None:
    assert publish(rig, "a").is_duplicate is False
    publish(rig, "b")
    again = publish(rig, "a", publisher=OTHER)
    assert (again.base, again.is_duplicate) == (0, True)
    assert held(rig) == ["a", "b"]
    assert rig.counts().attached == 2


def test_the_same_publisher_may_repeat_an_id_under_a_new_sequence(rig: Rig) -> None:
    publish(rig, "a")
    again = publish(rig, "a")
    assert (again.base, again.is_duplicate) == (0, True)
    assert publish(rig, "b").base == 1
    assert held(rig) == ["a", "b"]


def test_messages_without_an_id_are_never_duplicates(rig: Rig) -> None:
    publish(rig, None, "a", None)
    again = publish(rig, None, "a", None, publisher=OTHER)
    assert (again.base, again.kept, again.places) == (3, (0, 2), {1: 1})
    assert held(rig) == [None, "a", None, None, None]


def test_of_two_equal_ids_in_one_batch_the_first_wins(rig: Rig) -> None:
    stored = publish(rig, "a", "b", "a", "b", "a", "c")
    assert (stored.base, stored.kept, stored.is_duplicate) == (0, (0, 1, 5), False)
    assert stored.places == {2: 0, 3: 1, 4: 0}
    assert held(rig) == ["a", "b", "c"]


def test_of_a_batch_only_what_is_new_is_stored(rig: Rig) -> None:
    publish(rig, *(f"id-{n}" for n in range(0, 20, 2)))
    stored = publish(rig, *(f"id-{n}" for n in range(20)), publisher=OTHER)
    assert (stored.base, stored.kept) == (10, tuple(range(1, 20, 2)))
    assert stored.places == {n: n // 2 for n in range(0, 20, 2)}
    again = publish(rig, *(f"id-{n}" for n in range(20)), publisher=GENERATED)
    assert (again.base, again.is_duplicate) == (None, True)
    assert again.places == {n: n // 2 + (10 if n % 2 else 0) for n in range(20)}
    assert rig.counts().attached == 20


def test_a_batch_whose_ids_cannot_be_read_is_refused_and_leaves_no_trace(rig: Rig) -> None:
    batch = b"\1\0\2\0\1\0\0\0\x26\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\2\0\0\0\x91\xc0\x91\1" + bytes(8)
    with pytest.raises(MalformedBatch):
        rig.broker.publish("orders", 0, batch, 1, OTHER, 0, 0, None, None)  # type: ignore[arg-type]
    assert publish(rig, "a", publisher=OTHER).base == 0


def test_a_batch_with_fewer_ids_than_messages_is_refused(rig: Rig) -> None:
    batch = encode_many([Message(body=b"x", id="a")])
    with pytest.raises(MalformedBatch, match="1 ids for 2 messages"):
        rig.broker.publish("orders", 0, batch, 2, OTHER, 0, 0, None, None)  # type: ignore[arg-type]


def test_a_message_that_is_nothing_but_an_id_is_stored_once(rig: Rig) -> None:
    batch = encode_one(None, id="a")
    answers = [Pending(), Pending()]
    for publisher, answer in zip((GENERATED, OTHER), answers, strict=True):
        rig.broker.publish("orders", 0, batch, 1, publisher, 0, 0, DIRECT, answer)
    rig.settle()
    assert [each.wait().is_duplicate for each in answers] == [False, True]
    assert publish(rig.crash(), "a").is_duplicate


# -- retries of a publisher ----------------------------------------------------------------------


def test_a_retry_by_sequence_tells_where_each_message_is(rig: Rig) -> None:
    publish(rig, "a")
    publish(rig, "x", "a", "y", publisher=OTHER)
    again = publish(rig, "x", "a", "y", publisher=OTHER, sequence=0)
    assert (again.is_duplicate, again.places) == (True, {0: 1, 1: 0, 2: 2})
    assert held(rig) == ["a", "x", "y"]


def test_a_retry_by_sequence_is_recognised_when_its_window_has_passed(rig: Rig) -> None:
    publish(rig, "a", "b", "a")
    rig.wait(2 * limits.DEDUP_S)
    assert publish(rig, "a", "b", "a", sequence=0).is_duplicate
    assert publish(rig, "a", publisher=OTHER).base == 2


def test_the_next_batch_follows_one_that_was_stored_in_part(rig: Rig) -> None:
    publish(rig, "a", "b", "a")
    for again in (rig, rig.crash()):
        assert publish(again, "a", "b", "a", sequence=0).is_duplicate
    assert publish(again, "a", "c", "d", sequence=2).kept == (1, 2)
    assert held(again) == ["a", "b", "c", "d"]


# -- in flight -----------------------------------------------------------------------------------


def test_a_second_publish_waits_until_the_first_is_durable(rig: Rig) -> None:
    first = submit(rig, "a")
    second = submit(rig, "a", publisher=OTHER)
    mixed = submit(rig, "b", "a", publisher=OTHER)
    assert [each.is_done for each in (first, second, mixed)] == [False] * 3
    rig.settle()
    assert (second.wait().base, second.wait().is_duplicate) == (0, True)
    assert (mixed.wait().base, mixed.wait().kept, mixed.wait().places) == (1, (0,), {1: 0})
    assert held(rig) == ["a", "b"]


def test_a_retry_of_the_same_publisher_waits_too(rig: Rig) -> None:
    first = submit(rig, "a", "b")
    again = submit(rig, "a", "b", sequence=0)
    later = submit(rig, "b", "c")
    rig.settle()
    assert (first.wait().base, first.wait().is_duplicate) == (0, False)
    assert (again.wait().base, again.wait().is_duplicate) == (0, True)
    assert (later.wait().base, later.wait().kept, later.wait().places) == (2, (1,), {0: 1})
    assert held(rig) == ["a", "b", "c"]


def test_a_publisher_whose_message_is_a_duplicate_in_flight_is_not_overtaken_by_itself(
    rig: Rig,
) -> None:
    submit(rig, "a")
    answers = [submit(rig, *ids, publisher=OTHER) for ids in (("a", "x"), ("y",), ("a",), ("z",))]
    rig.settle()
    assert [each.wait().is_duplicate for each in answers] == [False, False, True, False]
    assert held(rig) == ["a", "x", "y", "z"]


def test_when_the_first_fails_the_second_is_not_confirmed_and_is_stored_when_it_comes_again(
    rig: Rig,
) -> None:
    def fail(op: Op) -> None:
        if op.verb in (Verb.WRITE, Verb.SYNC):
            raise OSError(5, "broken")

    rig.disk.on_operation = fail
    first = submit(rig, "a")
    second = submit(rig, "a", publisher=OTHER)
    rig.settle()
    for pending in (first, second):
        with pytest.raises(StoreFailed):
            pending.wait()
    again = rig.crash()
    stored = publish(again, "a", publisher=OTHER, sequence=0)
    assert (stored.base, stored.is_duplicate) == (0, False)
    assert publish(again, "a", sequence=0).is_duplicate


# -- the window ----------------------------------------------------------------------------------


def test_an_id_is_known_for_ten_minutes(rig: Rig) -> None:
    publish(rig, "a")
    rig.wait(limits.DEDUP_S - 1)
    assert publish(rig, "a", publisher=OTHER).is_duplicate
    rig.wait(2)
    stored = publish(rig, "a", publisher=OTHER)
    assert (stored.base, stored.is_duplicate) == (1, False)
    assert publish(rig, "a").base == 1


def test_an_id_is_known_until_too_many_came_after_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEDUP_IDS_MAX", 10)
    publish(rig, *(f"id-{n}" for n in range(10)))
    assert publish(rig, "id-0").is_duplicate
    publish(rig, "one more")
    assert not publish(rig, "id-0").is_duplicate
    assert publish(rig, "id-2").is_duplicate


def test_partitions_have_windows_of_their_own() -> None:
    with MemoryBroker() as broker:
        client = broker.client_blocking()
        with client:
            client.create_topic("orders", partitions=8)
            receipts = [client.publish("orders", b"x", id="a", key=f"k{n}") for n in range(16)]
    first = {receipt.partition: receipt.offset for receipt in reversed(receipts)}
    assert len(first) > 1
    assert [r.duplicate for r in receipts] == [
        any(r.partition == before.partition for before in receipts[:n])
        for n, r in enumerate(receipts)
    ]


@pytest.mark.parametrize("how", ["crash", "restart"])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_the_window_survives(rig: Rig, how: str, is_snapshot: bool) -> None:
    publish(rig, "a", None, "b")
    rig.wait(300)
    publish(rig, "c", "a")
    if is_snapshot:
        rig.keeper.snapshot()
    publish(rig, "d")
    again: Rig = getattr(rig, how)()
    for id, place in (("a", 0), ("b", 2), ("c", 3), ("d", 4)):
        stored = publish(again, id, publisher=OTHER)
        assert (stored.base, stored.is_duplicate) == (place, True)
    again.wait(301)
    assert not publish(again, "a", publisher=OTHER).is_duplicate
    assert publish(again, "c", publisher=OTHER).is_duplicate
    assert not publish(again, "e", publisher=OTHER).is_duplicate


def test_a_snapshot_does_not_remember_what_never_became_durable(rig: Rig) -> None:
    publish(rig, "a")
    pending = submit(rig, "b")
    rig.keeper.snapshot()
    again = rig.crash()
    assert not pending.is_done
    stored = publish(again, "a", "b", publisher=OTHER)
    assert (stored.base, stored.kept, stored.places) == (1, (1,), {0: 0})


def test_a_snapshot_lets_go_of_a_window_that_has_passed(rig: Rig) -> None:
    publish(rig, "a")
    rig.wait(limits.DEDUP_S + 1)
    rig.keeper.snapshot()
    assert rig.broker.state.names["orders"].partitions[0].seen is None


# -- only client publishes are checked -----------------------------------------------------------


def every(frame: Frame, view: Batch, index: int) -> bool:
    return True


@pytest.mark.parametrize("is_crashing", [False, True])
def test_a_dead_letter_is_redriven_within_the_window_and_its_id_stays_known(
    is_crashing: bool,
) -> None:
    rig = Rig()
    worker = rig.attach()
    publish(rig, "a", "b")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED, reason="bad")
    rig.keeper.move_doomed()
    rig.settle()
    assert held(rig, "orders.dead.billing") == ["a", "b"]
    assert rig.broker.redrive("orders", "billing", every, None, is_dry=False) == 2
    rig.settle()
    assert held(rig) == ["a", "b"]
    if is_crashing:
        rig = rig.crash()
    assert publish(rig, "a", publisher=OTHER).is_duplicate
    assert held(rig) == ["a", "b"]
    counts = rig.counts()
    assert (counts.attached, counts.dead) == (2, 0)


# -- through the client --------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_a_client_is_told_of_duplicates(scheme: str, tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}" if scheme == "file" else "memory:"

    async def scenario() -> None:
        async with penstock.connect(url) as client:
            assert client.capabilities.has_dedup
            first = await client.publish("orders", b"1", id="a")
            again = await client.publish("orders", b"2", id="a")
            assert (first.duplicate, again.duplicate) == (False, True)
            assert (again.id, again.position) == ("a", first.position)
            receipts = await client.publish_many(
                "orders", [Message(body=b"x", id=id) for id in ("b", "a", "b", "c")]
            )
            assert [r.duplicate for r in receipts] == [False, True, True, False]
            assert [r.offset for r in receipts] == [1, 0, 1, 2]
            assert receipts.duplicates == [1, 2]
            assert [m.body for m in await client.peek("orders")] == [b"1", b"x", b"x"]

    asyncio.run(scenario())


def test_a_client_whose_first_messages_are_all_duplicates_goes_on(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"

    async def scenario(*bodies: bytes) -> list[bool]:
        async with penstock.connect(url) as client:
            answers = [
                client.publish("orders", body, id=f"id-{n}") for n, body in enumerate(bodies)
            ]
            receipts = await asyncio.gather(*answers)
            plain = await client.publish("orders", b"plain")
            assert not plain.duplicate
            return [receipt.duplicate for receipt in receipts]

    assert asyncio.run(scenario(b"a", b"b")) == [False, False]
    assert asyncio.run(scenario(b"a", b"b", b"c")) == [True, True, False]
    assert asyncio.run(scenario(b"a", b"b", b"c")) == [True, True, True]
