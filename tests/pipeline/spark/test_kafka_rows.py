"""Records of Kafka as raw messages: the same columns as those of our own broker."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.pipeline.datasets.moments import END_US
from penstock.pipeline.datasets.raw import RAW, moment_text, raw_batch
from penstock.pipeline.spark import kafka_rows, workers
from tests.pipeline.lane import readings

Header = tuple[str, bytes | None]
MS = 1_700_000_000_123


def _records(
    given: list[tuple[bytes | None, list[Header] | None]], partition: int = 1, first: int = 5
) -> pa.RecordBatch:
    """What the connector gives, as it is selected: a column for each header."""
    count = len(given)
    headers = {
        name: pa.array(
            [next((value for own, value in said or () if own == name), None) for _, said in given],
            pa.binary(),
        )
        for name in kafka_rows.NAMES
    }
    return pa.record_batch(
        {
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([MS * 1000] * count, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "value": pa.array([body for body, _ in given], pa.binary()),
            **headers,
        }
    )


def test_records_say_the_same_as_messages_of_our_own_broker() -> None:
    moment = "2020-02-10T08:00:06.032000Z"
    plain = {"source": "site", "received-at": moment, "content-type": "text/csv"}
    headers: list[dict[str, str] | None] = [plain, None, {"source": "other"}, plain]
    bodies = [b"a", b"", None, b"b"]
    given: list[tuple[bytes | None, list[Header] | None]] = [
        (body, None if each is None else [(name, text.encode()) for name, text in each.items()])
        for body, each in zip(bodies, headers, strict=True)
    ]
    found = kafka_rows.raw_of(_records(given))
    wanted = raw_batch(
        bodies, ids=["1:5", "1:6", "1:7", "1:8"], headers=headers, published_ms=MS, partition=1,
        offsets=range(5, 9),
    )  # fmt: skip
    assert found.schema.equals(RAW)
    assert found.to_pylist() == wanted.to_pylist()


def test_records_without_any_header_are_messages_too() -> None:
    found = kafka_rows.raw_of(_records([(b"x", None), (b"y", [])]))
    assert found.column("sender").to_pylist() == [None, None]
    assert found.column("body").to_pylist() == [b"x", b"y"]
    assert found.column("id").to_pylist() == ["1:5", "1:6"]


def test_what_a_record_of_ours_says_about_itself_is_heard() -> None:
    more = json.dumps({"headers": {"source": "Süd"}, "id": "my id "}).encode()
    given: list[tuple[bytes | None, list[Header] | None]] = [
        (b"x", [("penstock-id", b"given"), ("penstock-at", b"1000")]),
        (b"", [("penstock-id", b"-"), ("penstock-body", b"absent"), ("penstock-more", more)]),
        (b"y", [("penstock-more", b"no json"), ("source", b"\xff"), ("source", b"second")]),
        (b"z", [("received-at", b"yesterday"), ("source", None)]),
    ]
    found = kafka_rows.raw_of(_records(given))
    assert found.column("id").to_pylist() == ["given", "my id ", "1:7", "1:8"]
    assert found.column("body").to_pylist() == [b"x", None, b"y", b"z"]
    assert found.column("sender").to_pylist() == [None, "Süd", "\ufffd", None]
    times = found.column("received").cast(pa.int64()).to_pylist()
    assert times == [1_000_000, MS * 1000, MS * 1000, MS * 1000]


def test_headers_that_make_no_sense_are_not_heard() -> None:
    more = b'{"headers":' + b"[" * 100_000
    last = b"0001-01-01T00:00:00+14:00"
    given: list[tuple[bytes | None, list[Header] | None]] = [
        (b"x", [("penstock-at", "²".encode())]),
        (b"x", [("penstock-at", b"-1")]),
        (b"x", [("penstock-at", b"1" * 5_000)]),
        (b"x", [("penstock-at", b"")]),
        (b"x", [("penstock-at", b"9" * 18)]),
        (b"x", [("penstock-more", more), ("received-at", last), ("source", b"\0")]),
        (b"x", [("penstock-more", b'{"headers":[],"id":"\\ud800"}')]),
    ]
    found = kafka_rows.raw_of(_records(given))
    times = found.column("received").cast(pa.int64()).to_pylist()
    assert [each for each in times if each != MS * 1000] == [END_US // 1000 * 1000]
    assert moment_text(max(times)).startswith("9999-12-31")


def _plan(folder: Path) -> workers.Plan:
    return workers.Plan("pms", True, {}, [workers.Target(str(folder), "", [])], False)


def test_a_task_does_the_records_of_each_partition(tmp_path: Path) -> None:
    given: list[Any] = [(body, [("source", b"site")]) for body in readings(30)]
    batches = [
        _records(given[:10], 0, 100), _records(given[10:20], 0, 110),
        pa.concat_batches([_records(given[20:25], 1, 7), _records(given[25:], 2, 1)]),
        _records([], 2),
    ]  # fmt: skip
    returned = list(kafka_rows.worked(_plan(tmp_path), batches))
    found = [workers.decode(batch.column("outcome")[0].as_py()) for batch in returned]
    assert [(each.partition, each.start, each.end, each.read) for each in found] == [
        (0, 100, 120, 20), (1, 7, 12, 5), (2, 1, 6, 5)
    ]  # fmt: skip
    assert sum(each.stored[0].stored for each in found) == 30


def test_a_task_without_records_returns_nothing(tmp_path: Path) -> None:
    assert list(kafka_rows.worked(_plan(tmp_path), [])) == []
