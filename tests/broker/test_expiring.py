"""Expired messages are settled by the timer and before anything is handed out."""

from penstock.batch import encode_many
from penstock.broker.expiring import expire_all
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.wall import JUMP_MS_MAX
from penstock.delivery.traits import NEVER
from penstock.vocabulary.message import Message
from tests.broker.rig import NAMED, Rig


def publish(rig: Rig, *seconds: float, topic: str = "orders") -> None:
    now = rig.clock.wall() / 1000
    batch = encode_many([Message(body=b"x", expires_at=now + s) for s in seconds])
    rig.broker.publish(topic, 0, batch, len(seconds), NAMED, 0, 0, DIRECT, Pending())
    rig.settle()


def test_the_timer_settles_what_has_expired_and_says_when_to_look_again() -> None:
    rig = Rig()
    rig.attach(credit=1)
    publish(rig, 5, 6, 400)
    rig.clock.advance(5.5)
    rig.broker.tick()
    rig.settle()
    assert rig.counts().expired == 0, "the first is out, the second has time"
    rig.clock.advance(1)
    rig.broker.tick()
    rig.settle()
    assert rig.counts().expired == 1
    assert expire_all(rig.broker.engine, rig.clock.wall()) <= rig.clock.wall() + 1000


def test_nothing_is_looked_at_once_nothing_can_expire() -> None:
    rig = Rig()
    worker = rig.attach()
    publish(rig, 5)
    assert rig.broker.engine.expiring
    for part in worker.take():
        rig.ack(worker, part)
    rig.settle()
    assert expire_all(rig.broker.engine, rig.clock.wall()) == NEVER
    assert not rig.broker.engine.expiring


def test_a_restart_goes_on_with_what_may_expire() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.detach(worker)
    publish(rig, 5)
    again = rig.restart()
    again.clock.advance(10)
    again.broker.tick()
    again.settle()
    assert again.counts().expired == 1


def test_a_jump_of_the_clock_is_seen_before_anything_ends_by_it() -> None:
    rig = Rig()
    worker = rig.attach(credit=1)
    publish(rig, 5, 6)
    rig.clock.wall_ms += JUMP_MS_MAX + 10_000
    assert rig.broker.tick() > 100, "nothing is to be done until the time is confirmed"
    rig.settle()
    assert rig.counts().expired == 0
    rig.ack(worker, worker.take_one())
    assert len(worker.take_one().frames) == 1, "it is handed out as usual"
    rig.detach(worker)
    assert rig.counts().waiting == 1
    rig.broker.confirm_time()
    rig.broker.tick()
    rig.settle()
    assert rig.counts().expired == 1


def test_a_jump_of_the_clock_is_seen_when_messages_are_handed_out() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.detach(worker)
    publish(rig, 5)
    rig.clock.wall_ms += JUMP_MS_MAX + 10_000
    assert rig.attach().bodies == [b"x"]
