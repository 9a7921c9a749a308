"""Server-sent events: a topic as it happens, for browsers and for `curl -N`.

Looking holds nothing and deletes nothing. The id of each event says how far every partition was
read, so that a client that comes back with it (`Last-Event-ID`, as browsers do) misses nothing
that is still held.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.batch.frame import Slice
from penstock.broker.broker import Sink
from penstock.broker.mailbox import DIRECT
from penstock.broker.pulling import attach_looking, find_topic
from penstock.server.http_exchange import Exchange
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import MIB
from penstock.wire import cloudevents
from penstock.wire.rest_messages import Piece, events, looked_at, shown
from penstock.wire.rest_path import parse_query
from penstock.wire.rest_tokens import ranges_of

if TYPE_CHECKING:
    from penstock.server.http import HttpListener

CREDIT: Final = 1_000
CREDIT_BYTES: Final = 4 * MIB
EVENT_STREAM: Final = "text/event-stream"
HEAD: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
RETRY: Final = b"retry: 1000\n\n"
HEARTBEAT: Final = b": still here\n\n"
FIELDS: Final = frozenset({"start", "format"})

_encode: Final = msgspec.json.Encoder().encode


async def stream(listener: "HttpListener", exchange: Exchange) -> None:
    """Sends the messages of a topic as events until the client leaves or the server drains."""
    topic = exchange.names["topic"]
    start, is_events = _wish(exchange)
    find_topic(listener.broker, topic)
    exchange.is_patient = True
    if exchange.is_head:
        exchange.reply(200, b"", EVENT_STREAM, HEAD)
        return
    slices: asyncio.Queue[Slice | Exception] = asyncio.Queue()
    sink = Sink(listener.mailbox, slices.put_nowait, slices.put_nowait)
    consumer = await listener.loop.run_in_executor(
        None, attach_looking, listener.broker, topic, start, CREDIT, CREDIT_BYTES, sink
    )
    try:
        exchange.begin_stream(EVENT_STREAM, HEAD)
        connection = exchange.connection
        connection.write(RETRY)
        places = {
            cursor.partition.index: cursor.done.floor for cursor in consumer.subscription.cursors
        }
        while True:
            try:
                part = await asyncio.wait_for(slices.get(), listener.settings.heartbeat_s)
            except TimeoutError:
                connection.write(HEARTBEAT)
                continue
            if isinstance(part, Exception):
                break
            connection.write(_written(topic, part, places, is_events=is_events))
            await connection.drain()
            claim = Claim(part.lease_id, part.partition, part.attempt, _ranges(part))
            listener.broker.ack(consumer, [claim])
        connection.end()
    finally:
        listener.broker.detach(consumer, {}, DIRECT, _nothing)


def _wish(exchange: Exchange) -> tuple[Any, bool]:
    """Where to start, and whether events are CloudEvents. Raises InvalidArgument, Refused."""
    fields = parse_query(exchange.query)
    unknown = set(fields) - FIELDS
    if unknown:
        raise InvalidArgument(f"a stream knows start and format, not {min(unknown)!r:.80}")
    form = fields.get("format", "json")
    if form not in {"json", "cloudevents"}:
        raise InvalidArgument(f"format is json or cloudevents, not {form!r:.80}")
    is_events = form == "cloudevents" or exchange.accepts(cloudevents.STRUCTURED)
    last = exchange.headers.get("last-event-id")
    if last:
        return _places(last), is_events
    start = fields.get("start")
    if start is not None and start.replace(".", "", 1).isdecimal():
        return float(start[:20]), is_events
    return start, is_events


def _places(text: str) -> dict[int, int]:
    """The id of an event: the next offset of every partition, `0:17,1:4`."""
    found: dict[int, int] = {}
    for part in text.split(","):
        partition, _, offset = part.partition(":")
        if not (partition.isdecimal() and offset.isdecimal() and len(part) <= 40):  # noqa: PLR2004
            raise InvalidArgument(f"Last-Event-ID {text!r:.80} is not one this server gave")
        found[int(partition)] = int(offset)
    return found


def _written(topic: str, part: Slice, places: dict[int, int], *, is_events: bool) -> bytes:
    lines: list[bytes] = []
    for frame in part.frames:
        piece = Piece(part.partition, frame, 0, len(frame.offsets))
        made: list[Any] = list((events if is_events else shown)(topic, [piece], looked_at))
        for offset, each in zip(frame.offsets, made, strict=True):
            places[part.partition] = offset + 1
            name = ",".join(f"{number}:{place}" for number, place in sorted(places.items()))
            lines.append(b"id: %b\ndata: %b\n\n" % (name.encode(), _one_line(_encode(each))))
    return b"".join(lines)


def _one_line(data: bytes) -> bytes:
    """JSON needs no line ends; those a body brought along mean nothing."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")


def _ranges(part: Slice) -> tuple[tuple[int, int], ...]:
    return ranges_of([offset for frame in part.frames for offset in frame.offsets])


def _nothing(_answer: Any) -> None:
    """Nobody waits for this."""
