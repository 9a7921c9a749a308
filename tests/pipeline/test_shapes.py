"""What really arrives: mostly right readings, and all that is not. Nothing stops, all counts."""

import json
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.gateway.samples import from_csv
from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.strict import Judge
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane, readings

RULES = {
    "truncated": "json",
    "garbage": "json",
    "deep": "key.unknown",
    "deeper than any parser goes": "json",
    "text for a number": "type.number",
    "a truth for a number": "type.number",
    "a list for an object": "type.object",
    "NaN": "json",
    "huge": "key.unknown",
    "unknown key": "key.unknown",
    "no zone": "time.zone",
    "doubled key": "key.duplicate",
}


def odd() -> dict[str, bytes]:
    """One of each kind."""
    right = bodies.encoded(bodies.pms(time_local="20200301T000000Z"))
    nested: object = 1
    for _ in range(100):
        nested = {"a": [nested]}
    return {
        "truncated": right[:-20],
        "garbage": bytes(range(256)),
        "deep": bodies.encoded(bodies.pms() | {"more": nested}),
        "deeper than any parser goes": b'{"pms_id":' + b"[" * 100_000,
        "text for a number": bodies.encoded(bodies.pms(pack__amps="1.5")),
        "a truth for a number": bodies.encoded(bodies.pms(pack__amps=True)),
        "a list for an object": bodies.encoded(bodies.pms(pack=[1, 2])),
        "NaN": right.replace(b"48.3", b"NaN"),
        "huge": bodies.encoded(bodies.pms() | {"blob": "x" * 1_000_000}),
        "unknown key": bodies.encoded(bodies.pms() | {"colour": "red"}),
        "no zone": bodies.encoded(bodies.pms(time_local="20200210T150006")),
        "doubled key": right.replace(b'"dock":1', b'"dock":1,"dock":2'),
    }


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Lane:
    """A table of 1,200 readings, one in a hundred of them no reading at all."""
    given = readings(1_188)
    for body in odd().values():
        given.insert(random.Random(len(body)).randrange(len(given)), body)
    found = Lane(tmp_path_factory.mktemp("shapes"))
    found.post(given)
    counts = found.run()
    assert (counts.read, counts.stored, counts.quarantined) == (1_200, 1_188, 12)
    return found


def test_each_odd_one_is_kept_with_its_reason(lane: Lane) -> None:
    held = lane.messages(f"{lane.topic}.quarantine")
    found = {
        body: [each["rule"] for each in json.loads(headers["penstock-reasons"])]
        for body, headers in held
    }
    judge = Judge(pms.SHAPE)
    for name, body in odd().items():
        assert RULES[name] in found[body], name
        refused = judge.judge(body)
        assert isinstance(refused, list)
        assert [each.rule for each in refused] == found[body]


def test_a_csv_with_blank_lines_and_headers_in_the_middle() -> None:
    real = Path(__file__).parent / "data" / "pms-2019-08.csv"
    header, *rows = real.read_bytes().splitlines()
    mixed = [header, rows[0], b"", rows[1], b" ,, ,", header.removeprefix(b"\xef\xbb\xbf"), rows[2]]
    messages = from_csv(pms.DATASET, b"\r\n".join([*mixed, b"torn,row", b""]), {})
    assert len(messages) == 4
    assert messages[3].headers is not None
    assert messages[3].headers["content-type"].startswith('text/csv; columns="pms_id,status.temp,')
    assert len({each.id for each in messages}) == 4


def test_other_readers_find_the_same_rows(lane: Lane) -> None:
    path = lane.folder / "warehouse" / "analytics" / "pms_monitoring"
    order = [("pms_id", "ascending"), ("time_event", "ascending")]
    ours = pa.Table.from_pylist(lane.rows(), pms.DATASET.schema).sort_by(order)
    table = DeltaTable(str(path))
    theirs = table.to_pyarrow_table().select(ours.schema.names).cast(ours.schema).sort_by(order)
    assert theirs.equals(ours)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(
            f"SELECT * FROM read_parquet({table.file_uris()}, hive_partitioning = true) "
            "ORDER BY pms_id, time_event"
        ).to_arrow_table()
    assert found.select(ours.schema.names).cast(ours.schema).equals(ours)
