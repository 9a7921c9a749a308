"""How old a row is when it can be seen: from the POST to a reader of the table.

Devices post through a gateway at a fixed rate, whether or not earlier rows are there; somebody else
looks at the Delta table all the time. Server, gateway and pipeline are processes of their own.
"""

import http.client
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench.measure import latency
from penstock.cli.bench.pipeline import readings
from penstock.cli.demo.crash import ChildFailed
from penstock.cli.demo.plant import Plant

RATE: Final = 1_000
POSTS: Final = 50
"""Requests a second; each carries as many readings as it takes."""
LOOK_S: Final = 0.01
START_S: Final = 300.0
LATE_S: Final = 60.0
"""How long the last rows are waited for."""
EPOCH: Final = datetime(2024, 6, 1, tzinfo=UTC)


class Watch(threading.Thread):
    """Looks at a Delta table and notes when each moment could be seen first."""

    def __init__(self, table: Path) -> None:
        super().__init__(name="watch", daemon=True)
        self._path = table
        self._stopping = threading.Event()
        self.seen: dict[datetime, float] = {}
        self.error: Exception | None = None

    def run(self) -> None:
        """Looks until it is stopped."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - told by `stop`
            self.error = error

    def _look(self) -> None:
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        while not DeltaTable.is_deltatable(str(self._path)):
            if self._stopping.wait(LOOK_S):
                return
        table = DeltaTable(str(self._path))
        known: set[str] = set()
        version = -1
        while not self._stopping.wait(LOOK_S):
            table.update_incremental()
            if table.version() == version:
                continue
            version = table.version()
            new = [each for each in table.file_uris() if each not in known]
            known.update(new)
            rows = [pq.read_table(each, columns=["time_event"], partitioning=None) for each in new]
            now = time.perf_counter()
            for part in rows:
                for moment in part.column("time_event").to_pylist():
                    self.seen.setdefault(moment, now)

    def stop(self) -> None:
        """Ends it. Raises what went wrong."""
        self._stopping.set()
        self.join()
        if self.error is not None:
            raise self.error


def measure(folder: Path, lane: str, seconds: float, rate: int = RATE) -> dict[str, Any]:
    """Posts for so many seconds and says how old rows were. Raises ChildFailed."""
    folder.mkdir(parents=True)
    with Plant(folder, lane, datasets=("pms",)) as plant:
        plant.start_server()
        plant.start_gateway()
        plant.start_pipeline("asap")
        watch = Watch(plant.warehouse / "analytics" / "pms_monitoring")
        watch.start()
        try:
            posted: dict[datetime, float] = {}
            _post(plant.gateway_port, posted, 0, 1, rate)  # the first row wakes everything up
            plant.wait_until(lambda: len(watch.seen) >= len(posted), "the first row", START_S)
            posted.clear()
            late = _post(plant.gateway_port, posted, 1, round(seconds * POSTS), rate)
            plant.wait_until(
                lambda: all(each in watch.seen for each in posted), "the last row", LATE_S
            )
        finally:
            watch.stop()
    ages = [watch.seen[moment] - sent for moment, sent in posted.items()]
    found = latency(ages)
    p95 = sorted(ages)[int(len(ages) * 0.95)]
    return {
        "readings": len(ages), "rate": rate, "p95": p95, "sent_late_s_max": late,
        "age": msgspec.to_builtins(found),
    }  # fmt: skip


def _post(port: int, posted: dict[datetime, float], first: int, count: int, rate: int) -> float:
    """Posts on time; how late the latest of them went out."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began, late, each = time.perf_counter(), 0.0, rate // POSTS
    try:
        for number in range(count):
            due = began + number / POSTS
            time.sleep(max(0.0, due - time.perf_counter()))
            late = max(late, time.perf_counter() - due)
            moments = [
                EPOCH + timedelta(seconds=(first + number) * each + at) for at in range(each)
            ]
            body = request((first + number) * each, moments)
            for moment in moments:
                posted[moment] = due
            connection.request(
                "POST", "/devices/dataset/pms", body, {"content-type": "application/json"}
            )
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                raise ChildFailed(f"the gateway answered {answer.status}")
    finally:
        connection.close()
    return late


def request(number: int, moments: list[datetime]) -> bytes:
    """A request with one reading for each of these moments."""
    datasets = []
    for at, moment in enumerate(moments):
        reading = json.loads(readings.body(number + at, moment))
        device, status = reading.pop("pms_id"), reading.pop("status")
        datasets.append({"pms_id": device, "status": status, "data": [reading]})
    return json.dumps({"datasets": datasets}).encode()
