"""Epochs of named publishers rise, whatever a clock says."""

import pytest

from penstock.broker import epochs
from penstock.broker.epochs import newest_epoch, take_epoch
from penstock.vocabulary.errors import InvalidArgument, PublisherFenced
from tests.broker.rig import NAMED, Rig


def test_the_first_gets_what_it_proposes_and_every_other_more() -> None:
    rig = Rig()
    assert [take_epoch(rig.broker, NAMED, at) for at in (500, 500, 100, 900)] == [
        500,
        501,
        502,
        900,
    ]
    assert take_epoch(rig.broker, b"\x01" + bytes(15), 7) == 7


@pytest.mark.parametrize("reopen", ["restart", "crash"])
def test_what_was_published_is_known_after_the_broker_started_again(reopen: str) -> None:
    rig = Rig()
    rig.publish(epoch=800)
    rig = rig.restart() if reopen == "restart" else rig.crash()
    assert newest_epoch(rig.broker, NAMED) == 800
    epoch = take_epoch(rig.broker, NAMED, 300)
    assert epoch == 801
    rig.publish(epoch=epoch)
    with pytest.raises(PublisherFenced):
        rig.publish(epoch=800)


def test_no_more_than_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "TAKEN_MAX", 2)
    rig = Rig()
    for number in range(4):
        take_epoch(rig.broker, bytes(15) + bytes((number,)), 5)
    assert len(rig.broker.epochs) == 2


def test_nonsense_is_refused() -> None:
    broker = Rig().broker
    for publisher, at_least in ((b"short", 0), (NAMED, -1), (NAMED, 1 << 62)):
        with pytest.raises(InvalidArgument):
            take_epoch(broker, publisher, at_least)
