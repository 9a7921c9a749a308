from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.cli.bench.pipeline import fresh
from penstock.cli.demo.crash import ChildFailed
from penstock.gateway.samples import from_json
from penstock.pipeline.datasets import finding


def test_a_request_has_a_reading_for_each_moment() -> None:
    moments = [datetime(2024, 6, 1, tzinfo=UTC) + timedelta(seconds=at) for at in range(3)]
    messages = from_json(finding.find("pms"), fresh.request(7, moments), {})
    assert len(messages) == 3
    assert len({each.id for each in messages}) == 3


def test_rows_are_seen_after_they_were_posted(tmp_path: Path) -> None:
    found = fresh.measure(tmp_path / "plant", "process", 0.5, rate=200)
    assert found["readings"] == 100
    assert 0 < found["age"]["p50"] <= found["p95"] <= found["age"]["worst"]


def test_a_table_that_never_comes_ends_the_watch(tmp_path: Path) -> None:
    watch = fresh.Watch(tmp_path / "nowhere")
    watch.start()
    watch.stop()
    assert watch.seen == {}
    broken = tmp_path / "broken"
    (broken / "_delta_log").mkdir(parents=True)
    (broken / "_delta_log" / f"{0:020}.json").write_text("{", encoding="utf-8")
    bad = fresh.Watch(broken)
    bad.start()
    bad.join(60)
    with pytest.raises(Exception, match=r"\S"):
        bad.stop()
    with pytest.raises((ChildFailed, OSError)):
        fresh._post(1, {}, 0, 1, 50)
