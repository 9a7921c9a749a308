"""Connections are kept from task to task, and belong to one process and one run."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.spark import connecting
from penstock.vocabulary.errors import ReaderFenced
from tests.pipeline.lane import Lane, readings


def test_a_client_is_opened_once_and_again_after_closing(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'data'}"
    try:
        one = connecting.client_of(url)
        assert connecting.client_of(url) is one
        connecting.close_all()
        assert one.is_closed
        assert connecting.client_of(url) is not one
    finally:
        connecting.close_all()


def test_a_new_run_fences_the_old_one(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(3))
    try:
        old = connecting.reader_of(lane.url, lane.topic, "r", "one")
        assert connecting.reader_of(lane.url, lane.topic, "r", "one") is old
        new = connecting.reader_of(lane.url, lane.topic, "r", "two")
        assert [tuple(each) for each in new.plan(2)] == [(0, 0, 2)]
        with pytest.raises(ReaderFenced):
            old.plan(2)
        with pytest.raises(ReaderFenced):
            connecting.reader_of(lane.url, lane.topic, "r", "one")
    finally:
        connecting.close_all()


def test_frames_are_looked_at_without_a_reader(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(5))
    try:
        frames = connecting.peek_frames(lane.url, lane.topic, 3, 0, 1)
        assert min(offset for frame in frames for offset in frame.offsets) == 1
        assert connecting.client_of(lane.url).subscriptions(lane.topic) == []
    finally:
        connecting.close_all()


def test_a_process_that_only_connects_does_not_load_a_broker() -> None:
    """Spark starts such a process for every query, and waits for it."""
    program = (
        "import sys; import penstock.pipeline.spark.connecting; import penstock.client as c; "
        "assert not any(each.startswith('penstock.broker') for each in sys.modules); "
        "assert c.Broker.__module__ == 'penstock.client.broker'; "
        "assert not hasattr(c, 'Nothing')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
