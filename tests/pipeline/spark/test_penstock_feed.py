"""Our own broker as the source of a query: a reader that moves, and is compared with the topic."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.blocking import LoopThread
from penstock.client.client import connect
from penstock.pipeline.refusals import SourceDiffers
from penstock.pipeline.spark.penstock_feed import PenstockFeed
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
    found = PenstockFeed(lane.pipeline, client, thread.call, 1)
    found.open()
    yield found
    found.close()
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
    newer = PenstockFeed(lane.pipeline, feed._client, feed._call, 1)
    newer.open()
    with pytest.raises(ReaderFenced):
        feed.report({0: 5})


def test_features_have_a_version(feed: PenstockFeed) -> None:
    version, found = feed.features()
    assert version == -1
    assert found.has_validation
