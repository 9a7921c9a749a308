"""The broker sleeps until something is due, and never for long."""

from penstock.batch import encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.timing import LOOK_MS, until_next
from penstock.delivery.traits import NEVER
from penstock.vocabulary.message import Message
from tests.broker.rig import NAMED, Rig


def left(rig: Rig, expire_at: int = NEVER) -> int:
    return until_next(rig.engine, rig.clock.now(), rig.clock.wall(), expire_at)


def test_with_nothing_due_it_looks_every_second() -> None:
    assert left(Rig()) == LOOK_MS


def test_an_end_a_back_off_and_a_delay_are_waited_for() -> None:
    rig = Rig()
    assert left(rig, rig.clock.wall() + 300) == 300
    worker = rig.attach()
    rig.publish("orders", b"x")
    rig.give_back(worker, worker.take_one(), delay_s=0.4)
    assert left(rig) == 400
    due = rig.clock.wall() / 1000 + 0.25
    batch = encode_many([Message(body=b"later", deliver_at=due)])
    rig.broker.publish("orders", 0, batch, 1, NAMED, 0, 1, DIRECT, Pending())
    rig.settle()
    assert left(rig) == 250
    rig.clock.advance(5)
    assert left(rig) == 1, "never less than a moment"
