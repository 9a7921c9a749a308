"""What frames mean: each is one call of the broker, whatever a client puts into it."""

import asyncio
import struct
from typing import Any

import pytest

from penstock.batch import Columns, encode_columns, encode_many
from penstock.batch import format as layout
from penstock.server.frames_limits import FramesLimits
from penstock.vocabulary import requests as q
from penstock.vocabulary.claims import Claim, Renewal
from penstock.vocabulary.errors import (
    AckRefused,
    InvalidArgument,
    InvalidName,
    MalformedBatch,
    PenstockError,
    ProtocolError,
    PublisherForgotten,
    StaleMap,
    Unavailable,
    UnknownTopic,
)
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import Cause
from penstock.vocabulary.units import Part, UnitWish
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_asks, frames_claims, frames_publish
from penstock.wire.frames import RECENT, Type
from penstock.wire.frames_errors import decode_error
from penstock.wire.frames_publish import publish_head
from tests.drivers.remote.rig import Served
from tests.server.test_frames import Raw
from tests.server.test_frames_connection import welcomed

GENERATED = bytes([2]) * 16
NAMED = bytes([1]) * 16
ONE = encode_many([b"x"])


def publish(
    raw: Raw, number: int, sequence: int = 0, *, topic: bytes = b"orders", batch: bytes = ONE,
    count: int = 1, partition: int = 0, partitions: int = 0, refusals: int = 0, flags: int = 0,
    publisher: bytes = GENERATED,
) -> None:  # fmt: skip
    head = publish_head(topic, partition, count, publisher, 0, sequence, partitions, refusals)
    raw.send(frames.frame(Type.PUBLISH, number, head + batch, flags))


def answer(raw: Raw) -> tuple[int, int, Any]:
    """Type, id and what it says."""
    while True:
        found = raw.next()
        assert found is not None, "the connection ended"
        kind, _, number, payload = found
        if kind == Type.ERROR:
            return kind, number, decode_error(payload)
        if kind == Type.STORED:
            return kind, number, frames_publish.decode_stored(payload)
        if kind == Type.COMMITTED:
            return kind, number, frames_publish.decode_committed(payload)
        if kind not in {Type.CONFIRMED, Type.PING}:
            return kind, number, payload


def attach(raw: Raw, channel: int, **changes: Any) -> None:
    wish = Wish("orders", "all", None, None, 100, 1 << 20, "raw")._replace(**changes)
    raw.send(frames.frame(Type.ATTACH, channel, frames_claims.encode_wish(wish)))


# -- publish -------------------------------------------------------------------------------------


def test_a_retry_is_answered_as_the_duplicate_it_is() -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1)
        publish(raw, 2)
        first, second = answer(raw), answer(raw)
        assert (first[2].base, first[2].is_duplicate) == (0, False)
        assert (second[2].base, second[2].is_duplicate) == (0, True)
        raw.close()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"topic": b"a b"}, InvalidName),
        ({"topic": b""}, InvalidName),
        ({"topic": b"x.dead.y"}, InvalidName),
        ({"partition": 7}, Unavailable),
        ({"partitions": 3}, StaleMap),
        ({"count": 2}, MalformedBatch),
        ({"batch": b""}, MalformedBatch),
        ({"batch": ONE[:-1] + b"?"}, MalformedBatch),
        ({"batch": layout.assemble(1, ((layout.BODIES, b"\x91\xa1x"),))}, MalformedBatch),
        ({"batch": layout.assemble(1, ((layout.BODIES, b"\x91\xc4\x05x"),))}, MalformedBatch),
        ({"batch": encode_columns(Columns(bodies=[b"x"], attempts=[9]))}, MalformedBatch),
        ({"sequence": 5}, PublisherForgotten),
    ],
)
def test_a_publish_that_is_refused_leaves_the_connection_and_the_next_one_alone(
    changes: dict[str, Any], kind: type[PenstockError]
) -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1, **changes)
        found = answer(raw)
        assert found[:2] == (Type.ERROR, 1)
        assert type(found[2]) is kind
        publish(raw, 2, refusals=1)
        assert answer(raw)[0] == Type.STORED
        raw.close()


def test_nobody_can_crash_a_consumer_with_a_batch() -> None:
    """A column of every wrong kind: it is refused, or every consumer can read it."""

    async def scenario(served: Served) -> None:
        raw = welcomed(served)
        stored = 0
        for number, column in enumerate(
            [b"\x92\xc0\xc0", b"\x92\xc4\x00\xc4\x01x", b"\x92\x01\x02", b"\x92\xa0\xa0",
             b"\x92\x80\x80", b"\x92\x90\x90", b"\xdc\x00\x02\xc4\x01x\xc0",
             b"\xdd\x00\x00\x00\x02\xc0\xc0",
             b"\x92\xc4\x01x\xc4\x01", b"\x92\xc6\x00\x00\x00\x01x\xc0", b"\x92\xc0\xc0\xc0"]
        ):  # fmt: skip
            batch = layout.assemble(2, ((layout.BODIES, column),))
            publish(raw, number, 2 * stored, batch=batch, count=2, refusals=number)
            stored += answer(raw)[0] == Type.STORED
        assert stored >= 4
        async with served.client() as client, client.subscribe("orders", "all") as deliveries:
            for _ in range(2 * stored):
                message = await deliveries.receive(timeout_s=10)
                assert message is not None
                assert message.body is None or isinstance(message.body, bytes)
                message.ack()
        raw.close()

    with Served() as served:
        asyncio.run(scenario(served))


def test_what_was_sent_behind_a_refusal_is_not_stored_before_its_sender_knows() -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1)
        assert answer(raw)[0] == Type.STORED
        publish(raw, 2, 1, partitions=9)  # refused: another map
        publish(raw, 3, 2)  # was under way already
        publish(raw, 4, 0, topic=b"other")  # has nothing to do with it
        assert answer(raw)[:2] == (Type.ERROR, 2)
        assert answer(raw)[:2] == (Type.BEHIND, 3)
        assert answer(raw)[:2] == (Type.STORED, 4)
        publish(raw, 3, 2, refusals=1)
        found = answer(raw)
        assert found[:2] == (Type.STORED, 3)
        assert found[2].base == 1
        raw.close()


def test_a_retry_after_a_refusal_is_stored_and_not_taken_for_a_duplicate() -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1)
        assert answer(raw)[0] == Type.STORED  # a refusal does not wait for what is being stored
        publish(raw, 2, 1, count=7)  # refused
        publish(raw, 3, 2)
        assert [answer(raw)[0] for _ in range(2)] == [Type.ERROR, Type.BEHIND]
        raw.close()
        again = welcomed(served)  # neither answer was seen: both go again
        publish(again, 2, 1)
        publish(again, 3, 2)
        bases = [answer(again)[2].base for _ in range(2)]
        assert bases == [1, 2]
        again.close()


def test_refusals_that_are_known_are_forgotten() -> None:
    with Served() as served:
        raw = welcomed(served)
        for number in range(300):
            publish(raw, number, topic=b"bad topic %d" % number, refusals=number)
            assert answer(raw)[0] == Type.ERROR
        (connection,) = served.listener.connections
        assert connection.session is not None
        assert len(connection.session._behind) < 70
        raw.close()


def test_a_recent_publisher_is_not_forgotten() -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1, 5, flags=RECENT)
        assert answer(raw)[2].base == 0
        publish(raw, 2, 5, flags=RECENT)
        assert answer(raw)[2].is_duplicate
        publish(raw, 3, 0, publisher=NAMED)
        assert answer(raw)[2].base == 1
        raw.close()


def test_a_map_creates_the_topic_and_tells_its_partitions() -> None:
    with Served() as served:
        raw = welcomed(served)
        raw.send(
            frames.frame(Type.MAP, 4, frames_publish.encode_map(frames_publish.TopicMap("new", 0)))
        )
        kind, number, payload = answer(raw)
        assert (kind, number) == (Type.MAP, 4)
        assert frames_publish.decode_map(payload) == ("new", 1)
        assert "new" in served.broker.state.names
        raw.send(
            frames.frame(Type.MAP, 5, frames_publish.encode_map(frames_publish.TopicMap("a b", 0)))
        )
        assert isinstance(answer(raw)[2], InvalidName)
        raw.close()


# -- units ---------------------------------------------------------------------------------------


def unit(raw: Raw, number: int, sequence: int, *parts: Part, claims: Any = (), refusals: int = 0,
         flags: int = 0) -> None:  # fmt: skip
    wish = UnitWish(GENERATED, 0, sequence, list(parts))
    pieces = frames_publish.encode_unit(wish, list(claims), refusals)
    raw.send(frames.frame(Type.UNIT, number, b"".join(pieces), flags))


def test_a_unit_is_committed_once() -> None:
    with Served() as served:
        raw = welcomed(served)
        part = Part("totals", 0, ONE, 1, 0, 0)
        unit(raw, 1, 0, part)
        unit(raw, 2, 0, part)
        first, second = answer(raw), answer(raw)
        assert [row.base for row in first[2]] == [row.base for row in second[2]] == [0]
        assert second[2][0].is_duplicate
        raw.close()


def test_units_and_publishes_behind_a_refused_unit_wait() -> None:
    with Served() as served:
        raw = welcomed(served)
        unit(raw, 1, 0, Part("totals", 0, ONE, 1, 0, 0), claims=[(99, [Claim(1, 0, 1, ((0, 1),))])])
        unit(raw, 2, 1, Part("totals", 0, ONE, 1, 0, 1))
        publish(raw, 3, 2, topic=b"totals")
        kinds = [answer(raw)[:2] for _ in range(3)]
        assert kinds == [(Type.ERROR, 1), (Type.BEHIND, 2), (Type.BEHIND, 3)]
        unit(raw, 2, 1, Part("totals", 0, ONE, 1, 0, 1), refusals=1, flags=RECENT)
        publish(raw, 3, 2, topic=b"totals", refusals=1)
        assert answer(raw)[2][0].base == 0
        assert answer(raw)[2].base == 1
        raw.close()


def test_a_unit_with_a_wrong_batch_or_of_a_stranger_is_refused() -> None:
    with Served() as served:
        raw = welcomed(served)
        unit(raw, 1, 0, Part("totals", 0, b"nonsense", 1, 0, 0))
        assert isinstance(answer(raw)[2], MalformedBatch)
        unit(raw, 2, 7, refusals=1)
        assert isinstance(answer(raw)[2], PublisherForgotten)
        unit(raw, 3, 0, claims=[(3, [Claim(1, 0, 1, ((0, 1),))])], refusals=2)
        assert isinstance(answer(raw)[2], AckRefused)
        raw.close()


# -- consume -------------------------------------------------------------------------------------


def test_attach_slice_ack_confirmed() -> None:
    with Served() as served:
        raw = welcomed(served)
        publish(raw, 1)
        assert answer(raw)[0] == Type.STORED
        attach(raw, 5)
        kind, number, payload = answer(raw)
        assert (kind, number) == (Type.ATTACHED, 5)
        assert frames_claims.decode_attached(payload).lease_s == 30.0
        kind, number, payload = answer(raw)
        assert (kind, number) == (Type.SLICE, 5)
        lease = struct.unpack_from("<Q", payload)[0]
        claims = frames_claims.encode_claims([Claim(lease, 0, 1, ((0, 1),))])
        raw.send(frames.frame(Type.ACK, 5, claims))
        found = raw.next()
        assert found is not None
        assert found[0] == Type.CONFIRMED
        assert frames_claims.decode_count(found[3]) == 1
        raw.send(frames.frame(Type.FLUSH, 6))
        assert answer(raw)[:2] == (Type.DONE, 6)
        raw.send(frames.frame(Type.DETACH, 5, frames_claims.encode_begun({})))
        assert answer(raw)[:2] == (Type.DONE, 5)
        assert not served.broker.engine.consumers
        raw.close()


def test_claims_of_what_was_never_given_are_refused() -> None:
    with Served() as served:
        raw = welcomed(served)
        attach(raw, 5)
        assert answer(raw)[0] == Type.ATTACHED
        for claim in (Claim(1, 0, 1, ((0, 1000),)), Claim(0, 900, 1, ((0, 1),))):
            raw.send(frames.frame(Type.ACK, 5, frames_claims.encode_claims([claim])))
            kind, _, payload = answer(raw)
            assert kind == Type.REFUSED
            assert frames_claims.decode_refused(payload)
        given = frames_claims.GiveBack(Claim(1, 0, 1, ((5, 6),)), Cause.NACKED, 1e12, "")
        raw.send(frames.frame(Type.GIVE_BACK, 5, frames_claims.encode_give_back(given)))
        assert answer(raw)[0] == Type.REFUSED
        extend = frames_claims.Extend([Renewal(99, 0, None), Renewal(98, 0, 1 << 40)], 5.0)
        raw.send(frames.frame(Type.EXTEND, 5, frames_claims.encode_extend(extend)))
        raw.send(frames.frame(Type.ACK, 77, frames_claims.encode_claims([claim])))  # nobody's
        raw.send(frames.frame(Type.DETACH, 78, frames_claims.encode_begun({})))
        assert answer(raw)[0] == Type.REVOKED  # the key of the nack goes on
        assert answer(raw)[:2] == (Type.DONE, 78)
        raw.close()


def test_a_channel_is_used_once_and_there_are_only_so_many() -> None:
    with Served(limits=FramesLimits(attachments_max=2)) as served:
        raw = welcomed(served)
        for channel in (1, 2, 3):
            attach(raw, channel)
        found = sorted(answer(raw)[:2] for _ in range(3))
        assert found == [(Type.ERROR, 3), (Type.ATTACHED, 1), (Type.ATTACHED, 2)]
        attach(raw, 1)
        assert isinstance(answer(raw)[2], ProtocolError)
        raw.close()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"topic": "a b"}, InvalidName),
        ({"credit": 0}, InvalidArgument),
        ({"consumer": ""}, InvalidName),
        ({"start": "nowhere"}, InvalidArgument),
        ({"topic": "x.dead.y"}, UnknownTopic),
    ],
)
def test_an_attach_that_is_refused_says_why(
    changes: dict[str, Any], kind: type[PenstockError]
) -> None:
    with Served() as served:
        raw = welcomed(served)
        attach(raw, 5, **changes)
        found = answer(raw)
        assert found[:2] == (Type.ERROR, 5)
        assert isinstance(found[2], kind)
        attach(raw, 5)
        assert answer(raw)[0] == Type.ATTACHED
        raw.close()


# -- ask -----------------------------------------------------------------------------------------


def ask(raw: Raw, number: int, request: Any) -> None:
    raw.send(frames.frame(Type.ASK, number, frames_asks.encode_question(request)))


def test_questions_are_answered_or_refused() -> None:
    with Served(limits=FramesLimits(asks_max=2)) as served:
        raw = welcomed(served)
        ask(raw, 1, q.CreateTopic("new", 3, TopicPolicy()))
        assert answer(raw)[:2] == (Type.ANSWER, 1)
        for number in range(2, 12):
            ask(raw, number, q.DescribeTopic("new"))
        assert sorted(answer(raw)[1] for _ in range(10)) == list(range(2, 12))
        ask(raw, 12, q.DescribeTopic("missing"))
        assert isinstance(answer(raw)[2], UnknownTopic)
        raw.send(frames.frame(Type.ASK, 13, b"\xee\x80"))
        assert answer(raw)[:2] == (Type.ERROR, 13)
        raw.send(frames.frame(Type.PING, 14))
        assert answer(raw)[:2] == (Type.PONG, 14)
        raw.close()


def test_hello_twice_and_goodbye() -> None:
    with Served() as served:
        raw = welcomed(served)
        raw.send(frames.frame(Type.HELLO, 0, b"PENS"))
        assert isinstance(answer(raw)[2], ProtocolError)
        raw.close()
        other = welcomed(served)
        attach(other, 5)
        assert answer(other)[0] == Type.ATTACHED
        other.send(frames.frame(Type.GOODBYE, 0))
        assert other.next() is None
        served.call(lambda: None)
        assert not served.broker.engine.consumers  # it does not wait for somebody who left
        other.close()
