"""Whatever stands in the source topic ends as stored, quarantined or duplicate; nothing stops."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.pipeline import messages
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.flow import ensure_topic
from penstock.pipeline.spark import joining, workers
from penstock.vocabulary.limits import BODY_BYTES_MAX
from penstock.vocabulary.message import Message
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane

RIGHT = bodies.encoded(bodies.pms())
PUBLISH = 'publish = "clean.pms"\n'


def _message(body: Any = RIGHT, **headers: str) -> Message:
    return Message(
        body=body if isinstance(body, bytes | None) else bodies.encoded(body),
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


def _padded(size: int, name: str) -> bytes:
    """A right reading of exactly so many bytes, most of them in one text."""
    short = bodies.encoded(bodies.pms(**{name: ""}))
    return bodies.encoded(bodies.pms(**{name: "y" * (size - len(short))}))


NESTED = b"[" * 200_000
STORED: dict[str, list[Message]] = {
    "a device longer than a key": [_message(bodies.pms(pms_id="y" * 2_000))],
    "a device longer than all headers": [_message(bodies.pms(pms_id="y" * 60_000))],
    "a device of wide letters": [_message(bodies.pms(pms_id="ü" * 600).copy())],
    "a device as long as a message": [_message(_padded(BODY_BYTES_MAX, "pms_id"))],
    "a pack as long as a message": [_message(_padded(BODY_BYTES_MAX, "pack__id"))],
    "an empty device": [_message(bodies.pms(pms_id=""))],
    "control characters in a device": [_message(bodies.pms(pms_id="a\n\0\x7f\u2028b"))],
    "a device of escapes": [_message(RIGHT.replace(b"PMS-01-001", b"\\u0050\\ud83d\\ude00"))],
    "received before all calendars": [_message(received_at="0001-01-01T00:00:00+14:00")],
    "received after all calendars": [_message(received_at="9999-12-31T23:59:59-12:00")],
    "received at no time": [_message(received_at="soon"), _message(received_at="")],
    "received without a zone": [_message(received_at="2020-02-10T08:00:06")],
    "a source as long as all headers": [_message(source="x" * 16_300)],
    "the first and the last moment": [
        _message(bodies.pms(time_local="00010101T000000Z")),
        _message(bodies.pms(time_local="99991231T235959.999999Z")),
        _message(bodies.pms(time_local="00010101T140000+1400")),
        _message(bodies.pms(time_local="99991231T115959-1200")),
    ],
    "the smallest numbers": [
        _message(bodies.pms(pack__amps=5e-324, status__temp=1e-300)),
        _message(RIGHT.replace(b"-0.625", b"-0.0")),
        _message(RIGHT.replace(b"-0.625", b"-0")),
        _message(RIGHT.replace(b"-0.625", b"1e-999999")),
        _message(RIGHT.replace(b"-0.625", b"0." + b"1" * 10_000)),
    ],
    "large numbers": [
        _message(bodies.pms(pack__amps=1e100, status__temp=1e9)),
        _message(bodies.pms(pack__amps=-(10**100), pack__temp=[1e-4, 1e100, 123456789012345.678])),
        _message(bodies.pms(pack__cell__volts=[1e6] + [5e-324] * 13, pack__amps=1e100)),
    ],
    "spaces around a reading": [_message(b" \r\n\t" + RIGHT + b" " * 200_000)],
    "an odd content type": [_message(content_type="x" * 16_300), _message(content_type="\0")],
}
REFUSED: dict[str, list[Message]] = {
    "no body": [_message(None), _message(None, received_at="0001-01-01T00:00:00+14:00")],
    "an empty body": [_message(b"")],
    "JSON that is no object": [
        _message(each)
        for each in (b"[]", b"1", b'"x"', b"null", b"true", b"{}", b"[" + RIGHT + b"]", b"-0")
    ],
    "no JSON": [_message(each) for each in (b"{", b"nan", b"x" * BODY_BYTES_MAX, b"\0", b"\xff")],
    "no UTF-8": [_message(RIGHT.replace(b"PMS", b"\xff\xfe"), source="ü")],
    "another UTF": [_message(RIGHT.decode().encode(each)) for each in ("utf-16", "utf-32")],
    "a mark before the text": [_message(b"\xef\xbb\xbf" + RIGHT)],
    "nested deeper than any parser goes": [
        _message(NESTED), _message(b'{"a":' * 100_000), _message(b'{"pack":' + NESTED),
        _message(RIGHT[:-1] + b',"x":' + b"[" * 900 + b"]" * 900 + b"}"),
        _message(RIGHT.replace(b"[35.0,33.0,34.0]", b"[" * 900 + b"]" * 900)),
    ],
    "half a letter": [
        _message(RIGHT.replace(b"PMS", b"\\ud800")), _message(RIGHT.replace(b"0241", b"\\udc00")),
        _message(RIGHT[:-1] + b',"\\ud800":1}'), _message(RIGHT[:-1] + b',"x":"\\ud800"}'),
        _message(RIGHT[:-1] + b',"x":["\\ud800",{"\\udfff":"\\ud800"}]}'),
        _message(RIGHT.replace(b"0001", b"\\ud800")), _message(RIGHT.replace(b"2020", b"\\ud800")),
    ],
    "numbers without end": [
        _message(RIGHT.replace(b"-0.625", each))
        for each in (b"1e308", b"1e309", b"-1e400", b"1" * 400, b"1" * 5_000, b"NaN", b"-Infinity")
    ],
    "whole numbers without end": [
        _message(RIGHT.replace(b'"dock":1', b'"dock":' + each))
        for each in (b"1e1", b"1.0", b"9" * 30, b"9" * 5_000, b"9223372036854775808", b"-1")
    ],
    "lists without end": [
        _message(bodies.pms(pack__cell__open=[1] * 200_000)),
        _message(bodies.pms(pack__cell__volts=[1] * 200_000)),
        _message(bodies.pms(pack__temp=[["x"]] * 100_000)),
    ],
    "cells that are too far apart": [_message(bodies.pms(pack__cell__volts=[3.0] * 13 + [1e9]))],
    "a key as long as a message": [
        _message(bodies.pms(**{"k" * 1_000_000: 1})), _message(bodies.pms(**{"\u2028" * 9_000: 1})),
        _message({"k" * 9_000: 1}),
        _message(bodies.pms(**{f"k{at}" * 500: at for at in range(300)})),
    ],
    "repeated keys": [
        _message(RIGHT.replace(b'"dock":1', each))
        for each in (b'"dock":1,"dock":1', b'"dock":null,"dock":1', b'"d\\u006fck":1,"dock":1')
    ],
    "headers that are as long as they may be": [
        _message(b"x", source="x" * 16_300), _message(b"x", content_type="x" * 16_300),
        _message(b"x", source="ü" * 4_000, content_type="…" * 2_000),
        _message({f"k{at}": "v" * 900 for at in range(900)}, source="x" * 16_300),
    ],
    "odd rows of CSV": [
        _message(each, content_type="text/csv")
        for each in (b'"', b'a,"b\nc",,', b"\xff\xfe\0", b"x" * BODY_BYTES_MAX, b"", None, RIGHT)
    ],
    "times that are none": [
        _message(bodies.pms(time_local=each))
        for each in (
            "00010101T000000+1400", "99991231T235959-1200", "00000101T000000Z", "20200230T000000Z",
            "20200210T150006-1230", "20200210T150006+2500", "20200210T150006+0060", "", "\0" * 20,
            "20200210T150006.Z", "\uff12\uff10200210T150006Z", "9" * 100_000,
        )
    ],
}  # fmt: skip
GOOD = Message(body=bodies.encoded(bodies.pms(pms_id="behind", time_local="20240501T000000Z")))


def _post(lane: Lane, given: Iterable[Message]) -> None:
    async def steps() -> None:
        async with connect(lane.url) as client:
            await ensure_topic(client, lane.topic)
            await client.publish_many(lane.topic, list(given))

    lane.call(steps())


@pytest.mark.parametrize("name", [*STORED, *REFUSED])
def test_nothing_stops_the_stream(tmp_path: Path, name: str) -> None:
    """The process lane: all of it, then a good reading behind it."""
    given = [*STORED.get(name, ()), *REFUSED.get(name, ())]
    lane = Lane(tmp_path, extra=PUBLISH)
    _post(lane, [*given, GOOD])
    counts = lane.run()
    counts.check(name)
    assert counts.read == len(given) + 1
    assert counts.quarantined == (len(given) if name in REFUSED else 0)
    assert "behind" in {row["pms_id"] for row in lane.rows()}
    kept = lane.messages(f"{lane.topic}.quarantine")
    assert [body for body, _ in kept] == [each.body for each in REFUSED.get(name, ())]
    for _, headers in kept:
        (first, *_) = messages.read_reasons(headers)
        assert first.rule not in {"", "more"}
    assert len(lane.messages("clean.pms")) == counts.stored
    assert sum(lane.events().values()) == counts.events


def _packs() -> list[Message]:
    return [_message(bodies.pms(pack__id=f"{at}" + "y" * 60_000)) for at in range(1_000)]


def _reasons() -> list[Message]:
    keys = ["k" * 90 + str(key) for key in range(30)]
    return [_message({f"{at}{key}": "v" * 200 for key in keys}) for at in range(1_000)]


MANY: dict[str, tuple[bool, Callable[[], list[Message]]]] = {
    "long packs": (True, _packs),
    "megabytes": (False, lambda: [_message(b"[" + b"1," * 500_000)] * 30),
    "long headers": (False, lambda: [_message(b"x", source="ü" * 8_000)] * 1_000),
    "long reasons": (False, _reasons),
}


@pytest.mark.parametrize("name", MANY)
def test_much_of_it_does_not_stop_the_stream_either(tmp_path: Path, name: str) -> None:
    is_right, make = MANY[name]
    given = make()
    lane = Lane(tmp_path)
    _post(lane, [*given, GOOD])
    stored = len(given) * is_right
    counts = lane.run()
    assert (counts.read, counts.stored) == (len(given) + 1, stored + 1)
    assert counts.quarantined == len(given) - stored


def test_nothing_stops_the_workers(tmp_path: Path) -> None:
    """The same list through what Spark's workers call, all in one range."""
    given = [each for part in (*STORED.values(), *REFUSED.values()) for each in part]
    plan = workers.Plan("pms", True, {}, [workers.Target(str(tmp_path), "", [])], keeps_rows=True)
    raw = raw_batch(
        [each.body for each in (*given, GOOD)],  # type: ignore[misc]
        headers=[each.headers for each in (*given, GOOD)],
    )
    count = len(given) + 1
    done = workers.work_messages(plan, 0, 0, count, [raw.slice(0, 40), raw.slice(40)], {})
    found = workers.decode(workers.encode(done))
    counts = joining.counts_of([found], 0)
    counts.check("range")
    refused = sum(map(len, REFUSED.values()))
    assert (counts.read, counts.quarantined) == (count, refused)
    assert "behind" in workers.to_table(found.rows).column("pms_id").to_pylist()
    told = list(messages.quarantine("pms", "t", found.quarantined))
    assert [
        json.loads(each.headers["penstock-reasons"])[0]["rule"] for _, each in told if each.headers
    ]
