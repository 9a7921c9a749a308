"""`pipeline status` and `pipeline replay` of a pipeline whose source is a real Kafka."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli.main import main
from penstock.pipeline.datasets.strict import Reason
from penstock.pipeline.mending import Fix
from penstock.pipeline.spark import kafka_operations
from penstock.pipeline.spark.kafka_feed import KafkaFeed
from penstock.pipeline.spark.kafka_link import KafkaLink
from penstock.pipeline.work import Quarantined
from penstock.vocabulary.errors import Unavailable, UnknownTopic
from tests.pipeline.lane import readings
from tests.pipeline.spark import kafka_world
from tests.pipeline.spark.lanes import SparkLane, new_ledger, whole
from tests.servers.fixtures import unique
from tests.servers.kafka import Cluster

RIGHT = readings(30)
WRONG = [b"nonsense", (RIGHT[20] or b"").replace(b'"amps":', b'"amperes":'), b"{}"]


def mend(body: bytes | None, reasons: list[Reason]) -> bytes | None:
    """What a person writes to mend bodies."""
    assert reasons
    assert body is not None
    return body.replace(b"amperes", b"amps") if b"amperes" in body else None


@pytest.fixture
def lane(kafka_server: Cluster, tmp_path: Path) -> SparkLane:
    servers = kafka_server.bootstrap
    found = SparkLane(tmp_path, f"kafka://{servers}", unique("monitoring.pms"))
    kafka_world.create(servers, found.topic)
    return found


def _servers(lane: SparkLane) -> str:
    return lane.url.removeprefix("kafka://")


def _quarantined(lane: SparkLane, bodies: list[bytes | None], start: int = 0) -> None:
    """Refused, as a run does it."""
    feed = KafkaFeed(lane.pipeline, new_ledger(lane))
    feed.open()
    try:
        refused = [
            Quarantined(
                0, at, f"id-{at}", body, "site", "application/json", 0, (Reason("", "json"),)
            )
            for at, body in enumerate(bodies, start)
        ]
        feed.publish(refused, pa.table({}), None, [(0, start, start + len(bodies))])
    finally:
        feed.close()


def test_what_is_in_quarantine_is_sent_once_and_what_is_given_up_on_is_left(
    lane: SparkLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = lane.pipeline
    assert kafka_operations.replay(pipeline) == (0, 0), "nothing was refused yet"
    _quarantined(lane, [*WRONG, None, b"later"])
    monkeypatch.setattr(kafka_operations, "AT_ONCE", 2)
    assert kafka_operations.replay(pipeline, mend, limit=3) == (1, 2)
    assert kafka_operations.replay(pipeline, lambda body, _: body and None, limit=2) == (0, 2)
    assert kafka_operations.replay(pipeline) == (4, 0), "what was left comes again"
    assert kafka_operations.replay(pipeline) == (0, 0)
    _quarantined(lane, [b"new"], 5)
    assert kafka_operations.replay(pipeline) == (1, 0)
    sent = kafka_world.records(_servers(lane), lane.topic)
    wanted = [RIGHT[20], b"nonsense", b"{}", None, b"later", b"new"]
    assert Counter(body for body, _ in sent) == Counter(wanted)
    (headers,) = [headers for body, headers in sent if body == RIGHT[20]]
    assert headers["source"] == "site"
    assert headers["received-at"].startswith("1970-01-01")
    assert headers["penstock-id"] == "pms/replay/0-1"


def test_a_replay_that_another_one_overtakes_sends_nothing_twice(lane: SparkLane) -> None:
    pipeline = lane.pipeline

    def overtaken(when: bytes, sent: int, limit: int) -> Fix:
        def fix(body: bytes | None, _reasons: list[Any]) -> bytes | None:
            if body == when:
                assert kafka_operations.replay(pipeline, limit=limit) == (sent, 0)
            return body

        return fix

    _quarantined(lane, [b"one", b"two"])
    with pytest.raises(Unavailable):  # Kafka refuses the older one of two
        kafka_operations.replay(pipeline, overtaken(b"one", 1, 1))
    _quarantined(lane, [b"three"], 2)
    done = kafka_operations.replay(pipeline, overtaken(b"two", 2, 9))
    assert done == (0, 0), "the other one sent them"
    sent = kafka_world.records(_servers(lane), lane.topic)
    assert Counter(body for body, _ in sent) == Counter([b"one", b"two", b"three"])


def test_what_can_be_read_only_once_the_last_replay_is_over_is_sent_too(
    lane: SparkLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    _quarantined(lane, [b"one"])
    claim = KafkaLink.claim

    def slowly(self: KafkaLink, name: str) -> None:
        monkeypatch.undo()
        _quarantined(lane, [b"two"], 1)
        claim(self, name)

    monkeypatch.setattr(KafkaLink, "claim", slowly)
    assert kafka_operations.replay(lane.pipeline) == (2, 0)


def _told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main(["pipeline", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_pipeline_is_looked_at_and_its_quarantine_goes_through_it_again(
    spark: Any, lane: SparkLane, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(lane.file)
    right = [each for at, each in enumerate(RIGHT) if at != 20]
    kafka_world.post(_servers(lane), lane.topic, [*right, *WRONG])
    (before,) = _told(capsys, "status", file)
    assert (before["batch"], before["lag"], before["counts"]["read"]) == (-1, 32, 0)
    lane.run_on(spark)
    (after,) = _told(capsys, "status", file)
    assert (after["batch"], after["is_finished"], after["lag"]) == (0, True, 0)
    assert (after["counts"]["stored"], after["counts"]["quarantined"]) == (29, 3)

    fix = f"{__name__}:mend"
    assert _told(capsys, "replay", file, "--quarantine", "--fix", fix) == {
        "pms": {"sent": 1, "left": 2}
    }
    kafka_world.settle(_servers(lane), lane.topic)
    (waiting,) = _told(capsys, "status", file)
    assert waiting["lag"] >= 1, "what was sent waits in the topic"
    assert lane.run_on(spark).stored == 1
    whole(lane, 30)
    (done,) = _told(capsys, "status", file)
    assert done["lag"] == 0
    assert list(done["rows"].values()) == [30]


def test_a_topic_that_is_not_there_is_told(lane: SparkLane) -> None:
    gone = lane.pipeline._replace(topic="monitoring.none")
    with pytest.raises(UnknownTopic, match=r"no topic 'monitoring\.none'"):
        kafka_operations.replay(gone)
    assert kafka_operations.status(gone).lag == 0


def test_what_kafka_still_holds_is_asked(lane: SparkLane) -> None:
    assert kafka_operations.lowest_held(lane.pipeline) == {0: 0, 1: 0, 2: 0}
    kafka_world.post(_servers(lane), lane.topic, RIGHT)
    kafka_world.trim(_servers(lane), lane.topic, {0: 2, 2: 1})
    assert kafka_operations.lowest_held(lane.pipeline) == {0: 2, 1: 0, 2: 1}
    with pytest.raises(UnknownTopic):
        kafka_operations.lowest_held(lane.pipeline._replace(topic="monitoring.none"))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([("a", b"1"), ("penstock-more", b'{"headers": {"b": "2"}}')], {"a": "1", "b": "2"}),
        ([("penstock-more", b"["), ("x", b"\xff")], {"x": "\ufffd"}),
        ([("penstock-more", b'{"headers": [1]}')], {}),
        ([("penstock-more", b'{"headers": {"b": 2}}')], {}),
    ],
)
def test_headers_come_back_as_they_were(
    given: list[tuple[str, bytes]], wanted: dict[str, str]
) -> None:
    assert kafka_operations.opened(given) == wanted
