"""Topics with `on_duplicate = replace`: the newest message of an id is the one that waits."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.delivery.admin import decide_delete_subscription
from penstock.delivery.counts import count, unexplained
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import Rig, Worker, claim
from tests.flow.ids import OTHER, held, publish, replacing, submit


@pytest.fixture
def rig() -> Rig:
    return replacing()


def subscribe(rig: Rig, name: str = "billing") -> None:
    rig.broker.create_subscription("orders", name, SubscriptionPolicy(), "earliest")


def received(worker: Worker) -> list[str]:
    """What came since the last time: id and number of each message."""
    return [
        (Batch(frame.batch).bodies[index] or b"").decode()
        for part in worker.take()
        for frame in part.frames
        for index in frame.indexes
    ]


def numbers(rig: Rig, name: str = "billing") -> tuple[int, int, int, int]:
    """Attached, waiting, leased, dropped."""
    found = rig.counts(name=name)
    assert unexplained(found) == 0
    return found.attached, found.waiting, found.leased, found.dropped


# -- waiting, leased, delayed --------------------------------------------------------------------


def test_a_waiting_message_is_replaced_and_the_newer_one_has_its_own_place(rig: Rig) -> None:
    subscribe(rig)
    publish(rig, "a", "b")
    stored = publish(rig, "a")
    assert (stored.base, stored.is_duplicate, stored.kept) == (2, False, None)
    assert held(rig) == ["b", "a"]
    assert numbers(rig) == (3, 2, 0, 1)
    assert received(rig.attach()) == ["b.1", "a.2"]


def test_the_older_one_leaves_in_the_same_unit(rig: Rig) -> None:
    subscribe(rig)
    publish(rig, "a")
    submit(rig, "a")
    assert held(rig.crash()) == ["a"]
    assert numbers(rig.crash()) == (1, 1, 0, 0)
    rig.settle()
    assert numbers(rig.crash()) == (2, 1, 0, 1)


def test_a_leased_message_stays_with_its_consumer(rig: Rig) -> None:
    worker = rig.attach(credit=1)
    publish(rig, "a", "b")
    (part,) = worker.slices
    assert received(worker) == ["a.0"]
    publish(rig, "a")
    assert numbers(rig) == (3, 2, 1, 0)
    rig.ack(worker, part)
    assert received(worker) == ["b.1"]
    assert rig.counts().acked == 1


def test_a_message_that_came_back_is_replaced_by_the_next(rig: Rig) -> None:
    worker = rig.attach(credit=1)
    publish(rig, "a", "b")
    (part,) = worker.take()
    publish(rig, "a")
    rig.give_back(worker, part, delay_s=30)
    assert rig.counts().delayed == 1
    publish(rig, "a")
    assert rig.counts().delayed == 0
    assert numbers(rig) == (4, 1, 1, 2)
    assert held(rig) == ["b", "a"]
    rig.wait(60)
    assert "a.0" not in received(worker)


def test_each_subscription_is_asked_for_itself(rig: Rig) -> None:
    worker = rig.attach(credit=1, subscription="busy")
    subscribe(rig, "idle")
    publish(rig, "a")
    publish(rig, "a")
    assert numbers(rig, "busy") == (2, 1, 1, 0)
    assert numbers(rig, "idle") == (2, 1, 0, 1)
    assert held(rig) == ["a", "a"]
    rig.ack(worker, worker.take_one())
    assert received(worker) == ["a.1"]
    assert held(rig) == ["a"]


def test_a_message_for_nobody_is_left_alone(rig: Rig) -> None:
    publish(rig, "a")
    publish(rig, "a")
    assert held(rig) == ["a", "a"]
    subscribe(rig)
    publish(rig, "a")
    assert numbers(rig) == (3, 1, 0, 2)
    assert held(rig) == ["a"]


def test_a_subscription_that_is_being_deleted_is_not_asked(rig: Rig) -> None:
    subscribe(rig, "leaving")
    subscribe(rig, "staying")
    publish(rig, "a")
    submit(rig, "a")
    with rig.engine.lock:
        leaving = rig.subscription(name="leaving")
        rig.engine.submit(decide_delete_subscription(leaving), None)
    submit(rig, "a")
    rig.settle()
    assert numbers(rig, "staying") == (3, 1, 0, 2)
    assert held(rig) == ["a"]
    assert numbers(rig.crash(), "staying") == (3, 1, 0, 2)


def test_a_subscription_whose_creation_is_in_flight_loses_nothing(rig: Rig) -> None:
    subscribe(rig)
    publish(rig, "a")
    worker = rig.attach(subscription="new", start="earliest", is_settled=False)
    submit(rig, "a")
    rig.settle()
    assert received(worker) == ["a.0", "a.1"]
    assert numbers(rig) == (2, 1, 0, 1)


def test_a_reader_gets_every_message() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            async with broker.client() as client:
                await client.create_topic("status", on_duplicate="replace")
                reader = await client.reader("status", "tables", owner="run-1")
                await client.create_subscription("status", "screen")
                for n in range(3):
                    await client.publish("status", b"%d" % n, id="pump-1")
                assert await reader.plan() == [(0, 0, 3)]
                found = [message.body async for message in reader.read(0, 0, 3)]
                assert found == [b"0", b"1", b"2"]
                rows = {row["subscription"]: row for row in await client.subscriptions("status")}
                assert (rows["screen"]["waiting"], rows["screen"]["dropped"]) == (1, 2)

    asyncio.run(scenario())


def test_an_ephemeral_consumer_gets_the_newest_too(rig: Rig) -> None:
    worker = rig.attach(subscription=None, credit=1)
    publish(rig, "first", "a", "b")
    publish(rig, "a")
    part = worker.slices[0]
    assert received(worker) == ["first.0"]
    for expected in (["b.2"], ["a.3"], []):
        rig.broker.ack(worker.consumer, [claim(part)])
        rig.settle()
        part = worker.slices[0] if worker.slices else part
        assert received(worker) == expected


def test_many_are_replaced_in_any_order(rig: Rig) -> None:
    subscribe(rig)
    publish(rig, *(f"id-{n}" for n in range(50)))
    for n in range(0, 50, 7):
        publish(rig, f"id-{n}", f"id-{49 - n}")
    ids = held(rig)
    assert sorted(ids, key=str) == sorted((f"id-{n}" for n in range(50)), key=str)
    worker = rig.attach()
    assert [row.partition(".")[0] for row in received(worker)] == ids


def test_messages_that_wait_for_their_time_or_their_turn_are_replaced(rig: Rig) -> None:
    worker = rig.attach(credit=1)
    publish(rig, "busy")
    publish(rig, "a", deliver_at=rig.clock.wall() / 1000 + 60)
    publish(rig, "b", priority=5)
    publish(rig, "c", priority=3)
    publish(rig, "b", priority=1)
    publish(rig, "a", priority=4)
    part = worker.slices[0]
    assert received(worker) == ["busy.0"]
    assert numbers(rig) == (6, 3, 1, 2)
    for expected in (["a.5"], ["c.3"], ["b.4"], []):
        rig.ack(worker, part)
        part = worker.slices[0] if worker.slices else part
        assert received(worker) == expected
    rig.wait(120)
    assert received(worker) == []


def test_the_next_message_of_a_key_goes_on_when_its_head_is_replaced(rig: Rig) -> None:
    policy = SubscriptionPolicy(kind=Kind.KEY_SHARED)
    worker = rig.attach(credit=1, policy=policy)
    publish(rig, "a", "b", key="k")
    rig.give_back(worker, worker.take_one(), delay_s=30)
    assert received(worker) == []
    publish(rig, "a", key="k")
    assert received(worker) == ["b.1"]
    assert numbers(rig) == (3, 1, 1, 1)


# -- in flight -----------------------------------------------------------------------------------


def test_messages_in_flight_are_replaced_before_anybody_gets_them(rig: Rig) -> None:
    worker = rig.attach()
    submit(rig, "a")
    submit(rig, "a", "b", publisher=OTHER)
    submit(rig, "a")
    rig.settle()
    assert received(worker) == ["b.1", "a.1"]
    assert numbers(rig) == (4, 0, 2, 2)


def test_messages_in_flight_over_several_groups_are_replaced(rig: Rig) -> None:
    """The older one becomes durable while the newer one waits for the next group."""
    worker = rig.attach()
    submit(rig, "a")
    grouped = rig.engine.journal.sync

    def sync() -> None:
        rig.engine.journal.sync = grouped  # type: ignore[method-assign]
        submit(rig, "a")
        grouped()

    rig.engine.journal.sync = sync  # type: ignore[method-assign]
    rig.engine.commit_once()
    assert received(worker) == []
    rig.settle()
    assert received(worker) == ["a.1"]
    assert numbers(rig) == (2, 0, 1, 1)


def test_of_two_equal_ids_in_one_batch_the_last_waits(rig: Rig) -> None:
    subscribe(rig)
    stored = publish(rig, "a", "b", "a")
    assert (stored.base, stored.kept, stored.is_duplicate) == (0, None, False)
    assert held(rig) == ["b", "a"]
    assert numbers(rig) == (3, 2, 0, 1)


def test_a_retry_of_the_publisher_is_no_new_message(rig: Rig) -> None:
    subscribe(rig)
    publish(rig, "a")
    publish(rig, "a")
    again = publish(rig, "a", sequence=1)
    assert (again.base, again.is_duplicate) == (1, True)
    assert numbers(rig) == (2, 1, 0, 1)


# -- restart -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["crash", "restart"])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_waiting_ids_are_known_after_a_restart(rig: Rig, how: str, is_snapshot: bool) -> None:
    subscribe(rig)
    publish(rig, "a", "b")
    rig.wait(3600)
    if is_snapshot:
        rig.keeper.snapshot()
    publish(rig, "b", "c")
    again: Rig = getattr(rig, how)()
    publish(again, "a", "c")
    assert held(again) == ["b", "a", "c"]
    assert numbers(again) == (6, 3, 0, 3)
    assert numbers(again.crash()) == (6, 3, 0, 3)


def every(frame: Frame, view: Batch, index: int) -> bool:
    return True


def test_a_redriven_message_comes_back_and_may_be_replaced(rig: Rig) -> None:
    worker = rig.attach(credit=2)
    publish(rig, "a", "b")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED, reason="bad")
    rig.keeper.move_doomed()
    rig.settle()
    publish(rig, "x", "y")
    worker.take()
    publish(rig, "a")
    assert rig.broker.redrive("orders", "billing", every, None, is_dry=False) == 2
    rig.settle()
    assert held(rig) == ["x", "y", "a", "a", "b"]
    publish(rig, "a")
    assert held(rig) == ["x", "y", "b", "a"]
    assert unexplained(rig.counts()) == 0


# -- any history ---------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_after_a_publish_no_older_message_of_its_id_waits(data: st.DataObject) -> None:
    rig = replacing()
    subscribe(rig, "idle")
    worker = rig.attach(credit=data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(1, 15))):
        step = data.draw(st.sampled_from(["publish", "publish", "burst", "ack", "nack", "crash"]))
        parts = worker.take()
        if step in {"publish", "burst"}:
            ids = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
            if step == "burst":
                submit(rig, data.draw(st.sampled_from("abc")), publisher=OTHER)
            worker.slices = parts
            base = publish(rig, *ids).base
            assert base is not None
            check_replaced(rig, {id: base + n for n, id in enumerate(ids)})
        elif step == "crash":
            rig = rig.crash()
            worker = rig.attach(credit=2)
        elif parts:
            worker.slices = parts[1:]
            if step == "ack":
                rig.ack(worker, parts[0])
            else:
                rig.give_back(worker, parts[0], delay_s=data.draw(st.sampled_from([0, 30])))
        for subscription in rig.broker.state.names["orders"].every_subscription():
            found = count(subscription)
            assert (unexplained(found), found.waiting >= 0) == (0, True)


def check_replaced(rig: Rig, newest: dict[str, int]) -> None:
    topic = rig.broker.state.names["orders"]
    older = [
        offset
        for _, frame in rig.broker.held("orders")
        for offset, index in zip(frame.offsets, frame.indexes, strict=True)
        if offset < newest.get(str((Batch(frame.batch).ids or ())[index]), 0)
    ]
    for subscription in topic.durable_subscriptions():
        cursor = subscription.cursors[0]
        leases = [lease for c in subscription.consumers or () for lease in c.leases.values()]
        for offset in older:
            is_leased = any(a <= offset < b for lease in leases for a, b in lease.unfinished())
            assert is_leased or offset in cursor.done, (subscription.name, offset)


# -- the policy ----------------------------------------------------------------------------------


def test_the_policy_is_chosen_when_the_topic_is_created(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="on_duplicate of topic 'orders' is 'replace'"):
        rig.broker.alter_topic("orders", {"on_duplicate": "drop"})
    rig.broker.alter_topic("orders", {"retain_s": 5, "on_duplicate": "replace"})
    with pytest.raises(InvalidArgument, match="wrong setting"):
        rig.broker.alter_topic("orders", {"on_duplicate": "keep"})


def test_a_client_creates_such_a_topic() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            async with broker.client() as client:
                await client.create_topic("status", on_duplicate="replace")
                policy = (await client.describe_topic("status"))["policy"]
                assert policy["on_duplicate"] == OnDuplicate.REPLACE
                await client.create_subscription("status", "screen")
                for n in range(3):
                    receipt = await client.publish("status", b"%d" % n, id="pump-1")
                    assert (receipt.offset, receipt.duplicate) == (n, False)
                async with client.subscribe("status", "screen") as deliveries:
                    message = await deliveries.receive(timeout_s=5)
                    assert message is not None
                    assert message.body == b"2"
                    message.ack()
                [row] = await client.subscriptions("status")
                assert (row["acked"], row["dropped"], row["unexplained"]) == (1, 2, 0)

    asyncio.run(scenario())


def test_a_message_replaced_inside_its_batch_is_not_handed_out_when_the_next_replaces_too() -> None:
    rig = replacing()
    worker = rig.attach()
    submit(rig, None, "x", "x")
    submit(rig, "x", publisher=OTHER)
    rig.settle()
    assert worker.bodies == [b"None.0", b"x.0"]
    counts = rig.counts()
    assert (counts.attached, counts.leased, counts.dropped) == (4, 2, 2)
    assert unexplained(counts) == 0
