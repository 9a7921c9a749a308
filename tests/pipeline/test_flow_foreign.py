"""The in-process lane on brokers that are not ours, each message in the table once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.bench.servers import Server
from penstock.pipeline.flow import identified
from penstock.vocabulary.message import Message
from tests.pipeline.lane import Lane, readings
from tests.pipeline.test_flow import numbers
from tests.servers.fixtures import unique


@pytest.fixture(params=["nats", "redis", "kafka"])
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Lane:
    """A lane whose topic is on another broker."""
    extra = "max_rows_per_batch = 40\n"
    if request.param == "nats":
        url = f"nats://{request.getfixturevalue('nats_server').address}"
    elif request.param == "redis":
        get: Callable[..., Server] = request.getfixturevalue("redis_server")
        url = f"redis://{get().address}"
    else:
        url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    return elsewhere(Lane(tmp_path, extra=extra), url)


def elsewhere(lane: Lane, url: str) -> Lane:
    old = lane.file.read_text(encoding="utf-8")
    option = "?topics=3:1" if url.startswith("kafka") else ""
    source, lane.url = f"{lane.url}/{lane.topic}", url + option
    lane.topic = unique("monitoring.pms")
    text = old.replace(source, f"{url}/{lane.topic}{option}")
    assert text != old
    lane.file.write_text(text, encoding="utf-8")
    return lane


def test_everything_ends_in_the_table_or_in_quarantine(lane: Lane) -> None:
    given: list[bytes | None] = [*readings(100)]
    given[7] = given[70] = b"not a reading"
    lane.post(given)
    assert numbers(lane.run()) == (100, 98, 2, 0)
    assert numbers(lane.run()) == (0, 0, 0, 0)
    lane.post(readings(10, 100))
    assert numbers(lane.run()) == (10, 10, 0, 0)
    assert sorted(row["pack"]["amps"] for row in lane.rows()) == [
        at / 8 for at in range(110) if at not in {7, 70}
    ]
    assert len(lane.messages(f"{lane.topic}.quarantine")) == 2


@pytest.mark.parametrize("moment", ["published", "table committed"])
def test_a_run_that_dies_doubles_nothing_on_redis(
    tmp_path: Path, redis_server: Callable[..., Server], moment: str
) -> None:
    lane = elsewhere(Lane(tmp_path), f"redis://{redis_server().address}")
    lane.post([*readings(20), b"not a reading"])
    lane.run_and_die(moment)
    lane.run()
    assert sorted(row["pack"]["amps"] for row in lane.rows()) == [at / 8 for at in range(20)]
    assert len(lane.messages(f"{lane.topic}.quarantine")) == 1
    assert set(lane.events().values()) == {1}


def test_a_run_that_is_repeated_has_the_same_ids() -> None:
    said = [Message(body=b"a"), Message(body=b"b")]
    ids = [each.id for each in identified("pms/events/0/1/5", said)]
    assert len(set(ids)) == 2
    assert [each.id for each in identified("pms/events/0/1/5", said)] == ids
    assert not {each.id for each in identified("pms/events/0/1/6", said)} & set(ids)
