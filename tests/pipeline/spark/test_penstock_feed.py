"""Our own broker as the source of a query: a reader that moves, and is compared with the topic."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.blocking import LoopThread
from penstock.client.client import connect
from penstock.pipeline import rules
from penstock.pipeline.datasets.events import EVENTS
from penstock.pipeline.ledger import Entry, Ledger, identity_of
from penstock.pipeline.operations import resume
from penstock.pipeline.refusals import SourceDiffers
from penstock.pipeline.spark.penstock_feed import PenstockFeed
from penstock.pipeline.work import Quarantined
from penstock.vocabulary.errors import ReaderFenced
from tests.pipeline.lane import Lane, readings


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    found = Lane(tmp_path)
    found.post(readings(30))
    return found


@pytest.fixture
def feed(lane: Lane) -> Iterator[PenstockFeed]:
    thread = LoopThread()
    client = connect(lane.url)
    ledger = Ledger(lane.folder / "checkpoint", identity_of(lane.pipeline))
    found = PenstockFeed(lane.pipeline, client, thread.call, ledger)
    found.open()
    yield found
    found.close()
    ledger.close()
    thread.call(client.close())
    thread.stop()


def test_progress_is_reported_forward_and_never_back(feed: PenstockFeed) -> None:
    assert feed.progress() == {0: 0}
    feed.report({0: 12})
    assert feed.progress() == {0: 12}
    feed.report({0: 5})
    assert feed.progress() == {0: 12}


def test_an_epoch_begins_behind_its_ends_and_further_back_when_it_is_held(
    feed: PenstockFeed,
) -> None:
    assert feed.begin({0: 20}) == {0: 20}
    assert feed.begin({0: 10}) == {0: 10}, "the topic still holds it"


def test_a_topic_that_lacks_what_comes_next_is_refused(feed: PenstockFeed) -> None:
    with pytest.raises(SourceDiffers, match="up to 0:30"):
        feed.check({0: 0}, {0: 30})  # nobody planned this: the reader is not the one it was
    feed._call(feed._reader.plan(None, None))
    feed.check({0: 0}, {0: 30})
    with pytest.raises(SourceDiffers, match="up to 0:31"):
        feed.check({0: 0}, {0: 31})
    feed.report({0: 10})
    with pytest.raises(SourceDiffers, match="holds 0:10 to 0:30"):
        feed.check({0: 3}, {0: 30})
    with pytest.raises(SourceDiffers, match="1:0 to 1:0"):
        feed.check({}, {1: 4})


def test_a_newer_run_fences_this_one(lane: Lane, feed: PenstockFeed) -> None:
    newer = PenstockFeed(lane.pipeline, feed._client, feed._call, feed._ledger)
    newer.open()
    with pytest.raises(ReaderFenced):
        feed.report({0: 5})


def test_features_have_a_version(feed: PenstockFeed) -> None:
    version, found = feed.features()
    assert version == -1
    assert found.has_validation


@pytest.mark.parametrize(("begun", "told"), [("same", 1), ("other", 3)])
def test_a_batch_that_was_begun_under_other_rules_is_told_apart(
    feed: PenstockFeed, lane: Lane, begun: str, told: int
) -> None:
    def publish(*offsets: int) -> None:
        found = [Quarantined(0, at, "i", b"x", None, None, 0, ()) for at in offsets]
        feed.publish(found, EVENTS.empty_table(), None, [(0, 0, 10)])

    mine = rules.fingerprint(lane.pipeline)
    for known in (mine, mine if begun == "same" else "another"):
        feed._ledger.entries = [Entry(1, 0, [(0, 0, 10)], rules=known)]
        for _ in range(2):
            publish(*((3,) if known == mine else (1, 3)))
    assert len(lane.messages(lane.pipeline.quarantine)) == told


def test_an_epoch_that_the_broker_knows_is_not_opened_again(lane: Lane) -> None:
    lane.post([b"x"])
    lane.run()
    resume(lane.pipeline)
    lane.post([b"y"])
    lane.run()  # in epoch 2
    shutil.rmtree(lane.folder / "checkpoint")
    thread = LoopThread()
    client = connect(lane.url)
    ledger = Ledger(lane.folder / "checkpoint", identity_of(lane.pipeline))
    try:
        ledger.open_epoch({0: 31}, 2)
        PenstockFeed(lane.pipeline, client, thread.call, ledger).open()
        assert ledger.last == Entry(3, -1, [(0, 31, 31)], is_asked=True)
    finally:
        ledger.close()
        thread.call(client.close())
        thread.stop()
