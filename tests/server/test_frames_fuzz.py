"""Frames with every kind of wrong value in them: the server refuses them and meets no defect."""

import logging
import random
from typing import Any

import msgspec
import pytest

from penstock.wire import frames, frames_asks
from penstock.wire.frames import Type
from penstock.wire.frames_errors import decode_error
from tests.drivers.remote.rig import Served
from tests.server.test_frames import Raw
from tests.server.test_frames_connection import welcomed

VALUES: list[Any] = [
    None, True, 0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, -1.0, float("nan"),
    float("inf"), 1e300, "", "t", "s", "0:0", "0:99999999999999999999", "9:9", "a b", "a.*", "#",
    "x.dead.y", "\0", "ü" * 200, "earliest", "latest", b"", b"\xff", [], [1], [[0, 1]], {},
    {"a": 1},
    {0: 5}, {0: -5}, {"kind": "shared"}, {"lease_s": -1.0}, {"retry": {"max_attempts": -3}},
    {"durability": "written"}, {"retain_s": "long"}, {"max_bytes": -5}, {"keep_last": 2**40},
]  # fmt: skip
ASKS = 1_500
TALK = 800


def hear(raw: Raw) -> tuple[int, bytes] | None:
    while True:
        found = raw.next()
        if found is None:
            return None
        if found[0] != Type.PING:
            return found[0], found[3]


def question(chance: random.Random) -> bytes:
    number = chance.choice(list(frames_asks.KINDS))
    kind = frames_asks.KINDS[number]
    names = msgspec.structs.fields(kind)
    likely = {"topic": "t", "subscription": "s", "reader": "r", "owner": "o", "is_dry": True}
    values = {
        field.name: likely[field.name]
        if field.name in likely and chance.random() < 0.8
        else chance.choice(VALUES)
        for field in names
    }
    if kind.__name__ == "Explain":
        return bytes((number,)) + msgspec.msgpack.encode(list(values.values()))
    for name in ("policy", "which"):
        if name in values and chance.random() < 0.8:
            values[name] = {}
    return bytes((number,)) + msgspec.msgpack.encode(values)


def test_no_question_meets_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(11)
    defects: list[str] = []
    with Served() as served, caplog.at_level(logging.ERROR, "penstock"):
        served.broker.partitions("t")
        raw = welcomed(served)
        for _ in range(ASKS):
            payload = question(chance)
            raw.send(frames.frame(Type.ASK, 1, payload))
            found = hear(raw)
            assert found is not None, payload
            if found[0] == Type.ERROR:
                error = decode_error(found[1])
                if error.code == "error":
                    defects.append(f"{payload!r}: {error.text}")
        raw.close()
    assert not defects, "\n".join(sorted(set(defects))[:10])
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR], caplog.text[-3000:]


def frame_of_anything(chance: random.Random) -> bytes:
    kind = chance.choice([*frames.FROM_CLIENT])
    rows = [chance.choice(VALUES) for _ in range(chance.randint(0, 9))]
    payload = chance.choice(
        [
            msgspec.msgpack.encode(rows),
            msgspec.msgpack.encode(chance.choice(VALUES)),
            chance.randbytes(chance.randint(0, 120)),
            bytes(chance.randint(0, 80)),
            b"",
        ]
    )
    number = chance.choice([0, 1, 2, 2**31, 2**32 - 1])
    return frames.frame(kind, number, payload, chance.randint(0, 3))


def test_no_frame_meets_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(12)
    with Served() as served, caplog.at_level(logging.ERROR, "penstock"):
        for _ in range(TALK):
            raw = welcomed(served)
            raw.send(b"".join(frame_of_anything(chance) for _ in range(chance.randint(1, 5))))
            raw.send(frames.frame(Type.GOODBYE, 0))
            while raw.next() is not None:
                continue
            raw.close()
        assert served.broker.journal.failed is None
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR], caplog.text[-3000:]
