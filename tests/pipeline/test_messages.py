import json
from typing import Any

import pyarrow as pa
from msgspec import structs

from penstock.batch import encode_many
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


def test_a_reason_that_is_too_long_alone_keeps_its_rule_and_the_start_of_its_path() -> None:
    for letter in ("x", "ü", "\0", "\U0001f600"):
        text = messages.reasons_text((Reason(letter * 9_000, "key.unknown", letter * 9_000),))
        assert len(text.encode()) <= messages.REASON_BYTES_MAX
        (found,) = json.loads(text)
        assert found["rule"] == "key.unknown"
        assert found["path"].startswith(letter * 90)
        assert found["path"].endswith("…")
    body = bodies.encoded(bodies.pms(**{"k" * 9_000: 1}))
    (refused,) = work.check(pms.DATASET, [raw_batch([body])]).quarantined
    (reason,) = refused.reasons
    assert (reason.rule, reason.path[:20], len(reason.path)) == ("key.unknown", "k" * 20, 219)
    half = work.check(pms.DATASET, [raw_batch([b'{"\\ud800":1}'])]).quarantined[0].reasons
    assert json.loads(messages.reasons_text(half))[0]["path"] == "?"


def test_headers_of_a_refused_message_always_fit_and_say_what_was_cut() -> None:
    reasons = tuple(Reason(f"p{at}" * 50, "rule", "v" * 200) for at in range(100))
    one = work.Quarantined(0, 7, "ü" * 9_000, b"x", "ü" * 8_000, "…" * 5_000, 0, reasons)
    ((_, message),) = messages.quarantine("p" * 128, "t" * 255, [one])
    encode_many([message])
    assert message.headers is not None
    assert message.headers["penstock-cut"] == "penstock-id,source,content-type"
    assert message.headers["source"] == "ü" * 1_534 + "…"
    ((_, message),) = messages.quarantine("p", "t", [structs.replace(one, id="i", sender="s")])
    assert message.headers is not None
    assert message.headers["penstock-cut"] == "content-type"
    assert message.headers["source"] == "s"


def test_a_device_that_is_no_key_is_hashed_into_one() -> None:
    assert messages.key_of("PMS-01") == "PMS-01"
    assert messages.key_of("ü" * 512) == "ü" * 512
    long = messages.key_of("ü" * 513)
    assert len(long) == 32
    assert long == messages.key_of("ü" * 513) != messages.key_of("ü" * 514)


def _checked(**changes: Any) -> work.Checked:
    return work.check(pms.DATASET, [raw_batch([bodies.encoded(bodies.pms(**changes))], ids=["m"])])


def test_an_event_of_a_device_with_a_long_name_fits_a_message() -> None:
    found = _checked(pms_id="y" * 60_000).events
    ((_, (_, message)),) = messages.events("monitoring.pms", found)
    encode_many([message])
    assert message.headers is not None
    assert message.headers["penstock-cut"] == "subject"
    assert json.loads(message.body or b"")["device"] == "y" * 60_000, "the body has room"
    found = _checked(pms_id="y" * 600_000, pack__id="z" * 600_000).events
    ((_, (_, message)),) = messages.events("monitoring.pms", found)
    encode_many([message])
    assert message.headers is not None
    assert message.headers["penstock-cut"] == "subject,body"
    body = json.loads(message.body or b"")
    assert (body["device"], body["pack"]) == ("y" * 1_021 + "…", "z" * 1_021 + "…")


def test_a_row_that_is_too_large_for_a_message_is_cut_or_goes_without_a_body() -> None:
    rows = work.make(pms.DATASET, _checked(pms_id="y" * 600_000, pack__id="z" * 600_000).good).rows
    ((_, (_, message)),) = messages.forwarded(pms.DATASET, rows)
    encode_many([message])
    assert message.headers is not None
    assert message.headers["penstock-cut"] == "body"
    assert json.loads(message.body or b"")["pack"]["watts"] == -32.0388
    long = rows.append_column("more", pa.array([[1] * 600_000]))
    ((_, (_, message)),) = messages.forwarded(pms.DATASET, long)
    assert message.body is None
    assert message.key is not None
    assert list(messages.forwarded(pms.DATASET, None)) == []


def test_a_moment_of_a_row_has_a_year_of_four_digits() -> None:
    found = _checked(time_local="00010101T000000.5Z").events
    ((_, (_, message)),) = messages.events("monitoring.pms", found)
    assert json.loads(message.body or b"")["time_event"] == "0001-01-01 00:00:00.5000"


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
