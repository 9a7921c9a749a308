import json

import pyarrow as pa

from penstock.pipeline import messages, work
from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.datasets.strict import Reason
from tests.pipeline.datasets import bodies


def test_a_refused_message_keeps_its_bytes_and_tells_every_reason() -> None:
    raw = raw_batch(
        [bodies.encoded(bodies.pms(status__temp=0, pack__dock=0))], ids=["m"], offsets=[7],
        headers=[{"source": "site", "received-at": "2020-02-10T08:00:06.000000Z"}],
    )  # fmt: skip
    refused = work.check(pms.DATASET, [raw]).quarantined
    ((number, message),) = messages.quarantine("pms", "monitoring.pms", refused)
    assert number == 7 * 1024
    assert message.body == raw.column("body")[0].as_py()
    assert message.id is None
    assert message.headers is not None
    assert [each.rule for each in messages.read_reasons(message.headers)] == [
        "range.above", "range.low",
    ]  # fmt: skip
    assert message.headers["penstock-position"] == "monitoring.pms/0:7"
    assert message.headers["received-at"] == "2020-02-10T08:00:06.000000Z"
    assert message.headers["source"] == "site"


def test_reasons_that_do_not_fit_say_how_many_more_there_are() -> None:
    reasons = tuple(Reason("p" * 100, "rule", "v" * 200) for _ in range(100))
    text = messages.reasons_text(reasons)
    assert len(text) <= messages.REASON_BYTES_MAX
    found = json.loads(text)
    assert found[-1] == {"path": "", "rule": "more", "value": str(100 - (len(found) - 1))}


def test_an_event_has_the_fields_of_the_contract_and_its_own_number() -> None:
    raw = raw_batch([bodies.encoded(bodies.pms())], ids=["m"], offsets=[7], partition=2)
    found = work.check(pms.DATASET, [raw]).events
    ((partition, (number, message)),) = messages.events("monitoring.pms", found)
    assert (partition, number) == (2, 7 * 1024 + 2)
    assert json.loads(message.body or b"") == {
        "id": "m/cell.open", "rule": "cell.open", "severity": "warning", "device": "PMS-01-001",
        "pack": "0241", "time_event": "2020-02-10 08:00:06.0320", "path": "pack.cell.open",
        "value": 2.0, "limit": 0.0,
    }  # fmt: skip


def test_a_row_is_forwarded_as_json_with_the_device_as_key() -> None:
    raw = raw_batch([bodies.encoded(bodies.pms())], ids=["m"], offsets=[7])
    rows = work.make(pms.DATASET, work.check(pms.DATASET, [raw]).good).rows
    ((_, (number, message)),) = messages.forwarded(pms.DATASET, rows)
    body = json.loads(message.body or b"")
    assert (number, message.key, body["pack"]["watts"]) == (7 * 1024, "PMS-01-001", -32.0388)
    assert body["time_event"] == "2020-02-10 08:00:06.0320"
    assert body["day"] == "2020-02-10"
    assert not [name for name in body if name.startswith("_")]


def test_no_rows_are_no_messages() -> None:
    assert list(messages.events("t", pa.table({"id": []}))) == []
