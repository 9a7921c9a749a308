"""Which request means what: the table of routes, and the handlers that fit in a few lines.

A handler answers at once, or returns a coroutine that will. Broker calls that wait for the disk
run in an executor, so that no request holds up another.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.broker.asking import answer_request
from penstock.broker.pulling import find
from penstock.server.http_exchange import Exchange
from penstock.server.http_metrics import prometheus
from penstock.server.http_pages import HTML, POLICY, docs_page, index_page
from penstock.server.http_stream import stream
from penstock.vocabulary import names
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import UnknownSubscription
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.limits import BODY_BYTES_MAX, MIB
from penstock.vocabulary.records import Cause
from penstock.wire import cloudevents
from penstock.wire import rest_requests as r
from penstock.wire.rest import JSON, NDJSON, Refused
from penstock.wire.rest_fields import Fields, from_headers
from penstock.wire.rest_lines import bulk, read_lines
from penstock.wire.rest_messages import Piece, events, looked_at, one_event, shown
from penstock.wire.rest_openapi import document

if TYPE_CHECKING:
    from penstock.server.http import HttpListener

Handler = Callable[[Exchange], Any]
BULK_BYTES_MAX: Final = 16 * MIB
JSON_BYTES_MAX: Final = 1 * MIB
MANY: Final = frozenset({NDJSON, "application/ndjson", cloudevents.BATCH, cloudevents.STRUCTURED})
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
BYTES: Final = "application/octet-stream"
ACK_TOKEN: Final = "penstock-ack-token"  # noqa: S105 - the name of a header
PREFLIGHT_METHODS: Final = "GET, PUT, POST, PATCH, DELETE"

_encode: Final = msgspec.json.Encoder().encode


class Route(NamedTuple):
    """The methods of one address."""

    methods: dict[str, Handler]
    is_json: bool = True
    """Its bodies are JSON, and nothing else is taken."""

    @property
    def allow(self) -> str:
        """What the Allow header says."""
        known = {*self.methods, *({"HEAD"} if "GET" in self.methods else ())}
        return ", ".join(sorted(known))


class Routes:
    """The routes of one listener."""

    def __init__(self, listener: "HttpListener") -> None:
        self._listener = listener
        self._broker = listener.broker
        self._seats = listener.seats
        self._publishing = listener.publishing
        self._table = self._make()

    def _make(self) -> dict[tuple[str, ...], Route]:
        topic = ("v1", "topics", "{topic}")
        place = (*topic, "subscriptions", "{subscription}")
        return {
            ("",): Route({"GET": self._index}),
            ("docs",): Route({"GET": self._docs}),
            ("openapi.json",): Route({"GET": self._openapi}),
            ("healthz",): Route({"GET": self._health}),
            ("readyz",): Route({"GET": self._ready}),
            ("metrics",): Route({"GET": self._metrics}),
            ("v1", "topics"): Route({"GET": self._topics}),
            topic: Route(
                {
                    "GET": self._topic, "PUT": self._put_topic, "PATCH": self._patch_topic,
                    "DELETE": self._delete_topic,
                }
            ),
            (*topic, "messages"): Route({"POST": self._publish, "GET": self._peek}, is_json=False),
            (*topic, "log"): Route({"GET": self._log}),
            (*topic, "stream"): Route({"GET": self._stream}),
            (*topic, "subscriptions"): Route({"GET": self._subscriptions}),
            place: Route(
                {
                    "GET": self._subscription, "PUT": self._put_subscription,
                    "PATCH": self._patch_subscription, "DELETE": self._delete_subscription,
                }
            ),
            (*place, "pull"): Route({"POST": self._pull}),
            (*place, "ack"): Route({"POST": self._ack}),
            (*place, "nack"): Route({"POST": self._nack}),
            (*place, "reject"): Route({"POST": self._reject}),
            (*place, "extend"): Route({"POST": self._extend}),
            (*place, "redrive"): Route({"POST": self._redrive}),
            (*place, "seek"): Route({"POST": self._seek}),
            (*place, "dead"): Route({"GET": self._dead}),
            (*place, "explain"): Route({"GET": self._explain}),
        }  # fmt: skip

    # -- finding ---------------------------------------------------------------------------------

    def find(self, exchange: Exchange) -> None:
        """Notes handler, names and limit of a request. Raises Refused."""
        path = exchange.path
        route = self._match(path, exchange.names)
        if route is None:
            raise Refused(
                404, "not-found", f"there is nothing at /{'/'.join(path)[:200]}; see /docs"
            )
        exchange.route = route
        method = "GET" if exchange.is_head else exchange.method
        if method == "OPTIONS":
            exchange.handler, exchange.limit = _options, JSON_BYTES_MAX
            return
        handler = route.methods.get(method)
        if handler is None:
            raise Refused(
                405,
                "method-not-allowed",
                f"{exchange.method} is not known here; known: {route.allow}",
                allow=route.allow,
            )
        exchange.handler = handler
        exchange.limit = self._limit(exchange, route)

    def _match(self, path: list[str], found: dict[str, str]) -> Route | None:
        pattern = tuple(path)
        if path[:2] == ["v1", "topics"] and len(path) > 2:  # noqa: PLR2004 - /v1/topics/{topic}
            found["topic"] = path[2]
            pattern = ("v1", "topics", "{topic}", *path[3:])
            if len(path) > 4 and path[3] == "subscriptions":  # noqa: PLR2004 - …/{subscription}
                found["subscription"] = path[4]
                pattern = (*pattern[:4], "{subscription}", *path[5:])
        if "" in path and pattern != ("",):
            return None
        return self._table.get(pattern)

    @staticmethod
    def _limit(exchange: Exchange, route: Route) -> int:
        kind = exchange.content_type
        if not route.is_json:
            return BULK_BYTES_MAX if kind in MANY else BODY_BYTES_MAX
        has_body = exchange.headers.get("content-length", "0") != "0"
        has_body = has_body or "transfer-encoding" in exchange.headers
        if has_body and kind not in {JSON, "", "application/x-www-form-urlencoded"}:
            raise Refused(
                415, "unsupported-media-type", f"the body must be {JSON}, not {kind[:80]!r}"
            )
        return JSON_BYTES_MAX

    # -- pages, health -----------------------------------------------------------------------------

    def _index(self, exchange: Exchange) -> None:
        exchange.reply(200, index_page(self._listener.address), HTML, POLICY)

    def _docs(self, exchange: Exchange) -> None:
        exchange.reply(200, docs_page(), HTML, POLICY)

    def _openapi(self, exchange: Exchange) -> None:
        exchange.reply(200, document(), JSON)

    def _health(self, exchange: Exchange) -> None:
        health = self._broker.health()
        exchange.reply(503 if health["status"] == "failed" else 200, _encode(health))

    def _ready(self, exchange: Exchange) -> None:
        health = self._broker.health()
        why = self._listener.is_ready()
        if why is None and (self._listener.is_draining or self._broker.is_draining):
            why = "the server is draining"
        if why is None and health["status"] == "failed":
            why = health["reasons"][0]
        if why is not None:
            raise Refused(503, "not-ready", why, retry_after="1")
        exchange.reply(200, _encode({"ready": True}))

    async def _metrics(self, exchange: Exchange) -> None:
        text = await self._wait(prometheus, self._broker, self._listener)
        exchange.reply(200, text.encode(), PROMETHEUS)

    # -- topics ----------------------------------------------------------------------------------

    async def _wait(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await self._listener.loop.run_in_executor(None, work, *arguments)

    async def _ask(self, request: q.Request) -> Any:
        return await self._wait(answer_request, self._broker, request)

    async def _topics(self, exchange: Exchange) -> None:
        exchange.reply(200, _encode({"topics": await self._ask(q.ListTopics())}))

    async def _topic(self, exchange: Exchange) -> None:
        exchange.reply(200, _encode(await self._ask(q.DescribeTopic(exchange.names["topic"]))))

    async def _put_topic(self, exchange: Exchange) -> None:
        topic = exchange.names["topic"]
        partitions, policy = r.topic_policy(r.body_of(exchange.body, r.TopicChanges))
        is_new = topic not in self._broker.state.names
        await self._ask(q.CreateTopic(topic, partitions, policy))
        found = await self._ask(q.DescribeTopic(topic))
        exchange.reply(201 if is_new else 200, _encode(found))

    async def _patch_topic(self, exchange: Exchange) -> None:
        topic = exchange.names["topic"]
        changes = r.given(r.body_of(exchange.body, r.TopicChanges))
        partitions = changes.pop("partitions", None)
        await self._ask(q.AlterTopic(topic, changes, partitions))
        exchange.reply(200, _encode(await self._ask(q.DescribeTopic(topic))))

    async def _delete_topic(self, exchange: Exchange) -> None:
        self._seats.evict(exchange.names["topic"])
        await self._ask(q.DeleteTopic(exchange.names["topic"]))
        exchange.reply(204)

    # -- messages --------------------------------------------------------------------------------

    def _publish(self, exchange: Exchange) -> Any:
        topic, headers = exchange.names["topic"], exchange.headers
        known = exchange.known
        if known is not None and known.message is not None:
            self._publishing.publish(
                topic, Fields(exchange.body, *known.message), partial(_receive, exchange)
            )
            return None
        kind = exchange.content_type
        now = self._broker.engine.clock.wall()
        if kind in MANY and kind != cloudevents.STRUCTURED:
            return self._publish_many(exchange, topic, kind, now)
        if kind == cloudevents.STRUCTURED:
            event = cloudevents.from_structured(exchange.body)
            fields = cloudevents.with_headers(event, headers, now)
        elif cloudevents.is_binary(headers):
            fields = cloudevents.from_binary(headers, exchange.body, now)
        else:
            fields = from_headers(headers, exchange.body, now)
            if known is not None and fields.body is not None and not any(fields[5:]):
                known.message = fields[1:]
        self._publishing.publish(topic, fields, partial(_receive, exchange))
        return None

    async def _publish_many(self, exchange: Exchange, topic: str, kind: str, now: int) -> None:
        if kind == cloudevents.BATCH:
            found = bulk(cloudevents.from_batch(exchange.body), len(exchange.body))
        else:
            found = read_lines(exchange.body, now)
        answer = await self._publishing.publish_many(topic, found, self._listener.loop)
        exchange.reply(200, answer)

    async def _peek(self, exchange: Exchange) -> None:
        wish = r.query_of(exchange.query, r.Looking)
        await self._show(exchange, exchange.names["topic"], wish)

    async def _show(self, exchange: Exchange, topic: str, wish: r.Looking) -> None:
        described = await self._ask(q.DescribeTopic(topic))
        found: list[Any] = []
        if wish.partition is None or wish.partition < described["partitions"]:
            found = await self._ask(q.Peek(topic, wish.limit, wish.partition, wish.after))
        pieces = [Piece(partition, frame, 0, len(frame.offsets)) for partition, frame in found]
        _reply_looked_at(exchange, topic, pieces)

    async def _log(self, exchange: Exchange) -> None:
        wish = r.query_of(exchange.query, r.Log)
        exchange.reply(
            200, _encode(await self._ask(q.TopicLog(exchange.names["topic"], wish.limit)))
        )

    async def _stream(self, exchange: Exchange) -> None:
        await stream(self._listener, exchange)

    # -- subscriptions ---------------------------------------------------------------------------

    async def _subscriptions(self, exchange: Exchange) -> None:
        rows = await self._ask(q.ListSubscriptions(exchange.names["topic"]))
        exchange.reply(200, _encode({"subscriptions": rows}))

    async def _subscription(self, exchange: Exchange) -> None:
        exchange.reply(200, _encode(await self._described(*_place(exchange))))

    async def _described(self, topic: str, name: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = await self._ask(q.ListSubscriptions(topic))
        for row in rows:
            if row["subscription"] == name:
                return row
        find(self._broker, topic, name)  # says what there is instead
        raise UnknownSubscription(f"topic {topic!r} has no subscription {name!r}")

    async def _put_subscription(self, exchange: Exchange) -> None:
        topic, name = _place(exchange)
        body = r.body_of(exchange.body, r.NewSubscription)
        known = self._broker.state.names.get(topic)
        is_new = known is None or name not in (known.subscriptions or {})
        policy = r.subscription_policy(body)
        await self._ask(q.CreateSubscription(topic, name, policy, body.start))
        exchange.reply(201 if is_new else 200, _encode(await self._described(topic, name)))

    async def _patch_subscription(self, exchange: Exchange) -> None:
        topic, name = _place(exchange)
        changes = r.subscription_changes(r.body_of(exchange.body, r.SubscriptionChanges))
        await self._ask(q.AlterSubscription(topic, name, changes))
        exchange.reply(200, _encode(await self._described(topic, name)))

    async def _delete_subscription(self, exchange: Exchange) -> None:
        topic, name = _place(exchange)
        self._seats.evict(topic, name)
        await self._ask(q.DeleteSubscription(topic, name))
        exchange.reply(204)

    # -- pull and settle -------------------------------------------------------------------------

    async def _pull(self, exchange: Exchange) -> None:
        topic, name = _place(exchange)
        wish = r.pull_of(exchange.body, exchange.query)
        form = wish.form(exchange.headers.get("accept", ""))
        wish.wait_s = min(wish.wait_s, self._listener.settings.pull_wait_s_max)
        exchange.is_patient = wish.wait_s > 0
        seat, pieces = await self._seats.pull(topic, name, wish)
        exchange.on_lost = lambda: seat.give_back(pieces)
        write = partial(self._seats.token, seat)
        if form in r.SINGLE:
            _reply_event(exchange, topic, pieces, write, is_binary=form == "cloudevents-binary")
        else:
            _reply_messages(exchange, topic, pieces, write, is_batch=form == "cloudevents-batch")

    async def _ack(self, exchange: Exchange) -> None:
        wish = r.body_of(exchange.body, r.Ack)
        count = await self._seats.ack(*_place(exchange), wish.tokens)
        exchange.reply(200, _encode({"acked": count}))

    async def _nack(self, exchange: Exchange) -> None:
        wish = r.body_of(exchange.body, r.Nack)
        count = await self._seats.give_back(
            *_place(exchange), wish.tokens, Cause.NACKED, wish.delay_s, wish.reason
        )
        exchange.reply(200, _encode({"nacked": count}))

    async def _reject(self, exchange: Exchange) -> None:
        wish = r.body_of(exchange.body, r.Reject)
        count = await self._seats.give_back(
            *_place(exchange), wish.tokens, Cause.REJECTED, 0.0, wish.reason
        )
        exchange.reply(200, _encode({"rejected": count}))

    def _extend(self, exchange: Exchange) -> None:
        wish = r.body_of(exchange.body, r.Extend)
        count = self._seats.extend(*_place(exchange), wish.tokens, wish.seconds)
        exchange.reply(200, _encode({"extended": count}))

    # -- dead letters, seek, explain -------------------------------------------------------------

    async def _redrive(self, exchange: Exchange) -> None:
        wish = r.body_of(exchange.body, r.Redrive)
        which = q.Filter(wish.id, wish.reason_contains)
        count = await self._ask(q.Redrive(*_place(exchange), which, wish.limit, wish.dry_run))
        exchange.reply(200, _encode({"redriven": count, "dry_run": wish.dry_run}))

    async def _seek(self, exchange: Exchange) -> None:
        wish = r.body_of(exchange.body, r.SeekTo)
        await self._ask(q.Seek(*_place(exchange), wish.to))
        exchange.reply(200, _encode(await self._described(*_place(exchange))))

    async def _dead(self, exchange: Exchange) -> None:
        topic, name = _place(exchange)
        wish = r.query_of(exchange.query, r.Looking)
        await self._described(topic, name)
        if is_pattern(topic):
            await self._ask(q.DescribeTopic(topic))  # says that one topic is meant
        dead = names.dead_topic(topic, name)
        if dead not in self._broker.state.names:
            _reply_looked_at(exchange, dead, [])
        else:
            await self._show(exchange, dead, wish)

    async def _explain(self, exchange: Exchange) -> None:
        topic, name = _place(exchange)
        wish = r.query_of(exchange.query, r.Question)
        answer = await self._ask(
            q.Explain(
                topic=topic, subscription=name, position=wish.position, id=wish.id, key=wish.key,
                consumer=wish.consumer,
            )
        )  # fmt: skip
        exchange.reply(200, _encode(answer))


def _receive(exchange: Exchange, answer: Any) -> None:
    """Answers a publish."""
    if isinstance(answer, Exception):
        exchange.fail(answer)
    else:
        exchange.reply(200, answer)


def _place(exchange: Exchange) -> tuple[str, str]:
    return exchange.names["topic"], exchange.names["subscription"]


def _options(exchange: Exchange) -> None:
    """What is known here; and, for the pages of an allowed site, that they may use it."""
    headers = {"allow": f"{exchange.route.allow}, OPTIONS"}
    if exchange.origin:
        headers["access-control-allow-methods"] = PREFLIGHT_METHODS
        headers["access-control-allow-headers"] = exchange.headers.get(
            "access-control-request-headers", "content-type"
        )
    exchange.reply(204, b"", JSON, headers)


def _reply_looked_at(exchange: Exchange, topic: str, pieces: list[Piece]) -> None:
    is_batch = exchange.accepts(cloudevents.BATCH) or exchange.accepts(cloudevents.STRUCTURED)
    _reply_messages(exchange, topic, pieces, looked_at, is_batch=is_batch)


def _reply_event(
    exchange: Exchange, topic: str, pieces: list[Piece], write: Any, *, is_binary: bool
) -> None:
    """One message as an event, in structured or binary mode; its token is a header."""
    if not pieces:
        exchange.reply(204)
        return
    attributes, body, token = one_event(topic, pieces[0], write)
    headers = {ACK_TOKEN: token} if token else {}
    if is_binary:
        headers |= cloudevents.to_binary(attributes)
        kind = headers.pop("content-type", BYTES)
        exchange.reply(200, body or b"", kind, headers)
    else:
        event = cloudevents.to_structured(attributes, body)
        exchange.reply(200, _encode(event), cloudevents.STRUCTURED, headers)


def _reply_messages(
    exchange: Exchange, topic: str, pieces: list[Piece], write: Any, *, is_batch: bool
) -> None:
    if is_batch:
        found = events(topic, pieces, write)
        exchange.reply(200, _encode(found), cloudevents.BATCH)
    else:
        exchange.reply(200, _encode({"messages": shown(topic, pieces, write)}))
