"""Looking without taking: held messages, dead letters, statistics, health."""

import pytest

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.vocabulary.errors import UnknownSubscription, UnknownTopic
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import Rig, Worker


@pytest.fixture
def rig() -> Rig:
    return Rig()


def every(_frame: Frame, _view: Batch, _index: int) -> bool:
    return True


# -- held --------------------------------------------------------------------------------------


def test_looking_leases_and_removes_nothing(rig: Rig) -> None:
    worker = rig.attach(credit=1)
    rig.publish("orders", b"a", b"b")
    before = rig.counts()
    assert rig.held() == [b"a", b"b"]
    assert rig.counts() == before
    assert len(worker.slices) == 1


def test_what_is_acked_is_invisible_at_once(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c")
    rig.ack(worker, worker.take_one(), (1, 2))
    assert rig.held() == [b"a", b"c"]


def test_looking_may_start_after_an_offset_and_in_one_partition(rig: Rig) -> None:
    rig.broker.create_topic("wide", 2, TopicPolicy())
    for partition in (0, 1):
        for number in range(3):
            rig.publish("wide", b"%d.%d" % (partition, number), partition=partition)
    found = [
        (partition, Batch(frame.batch).bodies[index])
        for partition, frame in rig.broker.held("wide", 1, 1)
        for index in frame.indexes
    ]
    assert found == [(1, b"1.1"), (1, b"1.2")]
    assert [partition for partition, _ in rig.broker.held("wide")] == [0, 0, 0, 1, 1, 1]


def test_looking_at_many_messages_goes_on_in_portions(rig: Rig) -> None:
    for _ in range(4):
        rig.publish("orders", *[b"x"] * 700)
    assert len(rig.held()) == 2800


def test_an_unknown_topic_cannot_be_looked_at(rig: Rig) -> None:
    with pytest.raises(UnknownTopic):
        rig.held("nothing")


# -- dead letters ------------------------------------------------------------------------------


def buried(rig: Rig, *bodies: bytes) -> Worker:
    """A worker whose messages all went to the dead letters."""
    worker = rig.attach()
    rig.publish("orders", *bodies)
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED, reason="bad")
    rig.keeper.move_doomed()
    return worker


def test_a_redrive_brings_dead_letters_back_to_their_subscription_only(rig: Rig) -> None:
    audit = rig.attach(subscription="audit")
    worker = buried(rig, b"a", b"b")
    audit.take()
    assert rig.broker.redrive("orders", "billing", every, None, is_dry=False) == 2
    rig.settle()
    assert worker.bodies == [b"a", b"b"]
    assert audit.slices == []
    assert rig.held("orders.dead.billing") == []
    assert rig.counts().dead == 0


def test_a_redriven_message_stays_with_its_subscription_after_a_crash(rig: Rig) -> None:
    rig.attach(subscription="audit")
    buried(rig, b"a")
    rig.broker.redrive("orders", "billing", every, None, is_dry=False)
    again = rig.crash()
    assert again.attach().bodies == [b"a"]
    assert again.attach(subscription="audit").bodies == [b"a"]
    assert again.counts(name="audit").attached == 1


@pytest.mark.parametrize("name", ["late", None])
def test_whoever_comes_after_a_redrive_and_a_restart_does_not_see_it(
    rig: Rig, name: str | None
) -> None:
    buried(rig, b"a")
    rig.broker.redrive("orders", "billing", every, None, is_dry=False)
    again = rig.restart()
    late = again.attach(subscription=name, start="earliest")
    again.publish("orders", b"b")
    assert late.bodies == [b"b"]


def test_a_dry_run_only_counts(rig: Rig) -> None:
    worker = buried(rig, b"a", b"b")
    assert rig.broker.redrive("orders", "billing", every, None, is_dry=True) == 2
    rig.settle()
    assert worker.slices == []
    assert len(rig.held("orders.dead.billing")) == 2


def test_a_filter_and_a_limit_choose(rig: Rig) -> None:
    buried(rig, b"a", b"b", b"c", b"d")
    chosen = rig.broker.redrive(
        "orders", "billing", lambda _f, view, i: view.bodies[i] != b"b", 2, is_dry=False
    )
    assert chosen == 2
    assert rig.held("orders.dead.billing") == [b"b", b"d"]


def test_hundreds_of_dead_letters_go_back_in_modest_units(rig: Rig) -> None:
    worker = buried(rig, *[b"%d" % n for n in range(250)])
    assert rig.broker.redrive("orders", "billing", every, None, is_dry=False) == 250
    rig.settle()
    assert worker.bodies == [b"%d" % n for n in range(250)]


def test_a_purge_removes_dead_letters_for_good(rig: Rig) -> None:
    buried(rig, b"a", b"b")
    assert rig.broker.purge_dead("orders", "billing", every, 1, is_dry=True) == 1
    assert rig.broker.purge_dead("orders", "billing", every, 1, is_dry=False) == 1
    assert rig.held("orders.dead.billing") == [b"b"]
    assert rig.crash().held("orders.dead.billing") == [b"b"]
    assert rig.counts().dead == 2


def test_without_dead_letters_there_is_nothing_to_redrive_or_purge(rig: Rig) -> None:
    rig.attach()
    assert rig.broker.redrive("orders", "billing", every, None, is_dry=False) == 0
    assert rig.broker.purge_dead("orders", "billing", every, None, is_dry=False) == 0


def test_a_redrive_needs_its_subscription(rig: Rig) -> None:
    rig.publish()
    with pytest.raises(UnknownTopic):
        rig.broker.redrive("nothing", "billing", every, None, is_dry=False)
    with pytest.raises(UnknownSubscription):
        rig.broker.redrive("orders", "nobody", every, None, is_dry=False)


def test_counts_stay_whole_when_a_namesake_takes_over_old_dead_letters(rig: Rig) -> None:
    worker = buried(rig, b"a")
    rig.detach(worker)
    rig.broker.delete_subscription("orders", "billing")
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.broker.redrive("orders", "billing", every, None, is_dry=False)
    counted = rig.counts()
    assert (counted.attached, counted.dead, counted.waiting) == (1, 0, 1)


# -- numbers and health ------------------------------------------------------------------------


def test_statistics_count_what_there_is(rig: Rig) -> None:
    rig.attach()
    rig.attach(subscription=None)
    rig.publish("orders", b"a", b"b")
    found = rig.broker.stats()
    assert (found["topics"], found["subscriptions"], found["consumers"]) == (1, 1, 2)
    assert (found["messages_held"], found["generation"]) == (2, 1)
    assert found["disk_bytes"] >= found["live_bytes"] > 0
    assert found["health"] == {"status": "ok", "reasons": []}
    assert found["recovery"]["damages"] == []


def test_damage_found_while_opening_is_told_until_it_is_seen(rig: Rig) -> None:
    rig.attach()
    for _ in range(30):
        rig.publish("orders", bytes(300))
    rig.journal.mark()
    key = rig.broker.state.names["orders"].partitions[0].key
    (place,) = rig.journal.index.locate(key, 5, 6)
    image = dict(rig.disk.image())
    name = place.segment.file.name
    content = bytearray(image[name])
    content[place.byte + 50] ^= 0xFF
    image[name] = bytes(content)
    again = Rig(type(rig.disk).from_image(image, record=True), rig.clock)
    health = again.broker.health()
    assert health["status"] == "degraded"
    assert name in health["reasons"][0]
