"""A connection to Redis: sends, administers, and opens consumers of groups."""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

import msgspec

from penstock.drivers import capabilities
from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import (
    Feed,
    Outcome,
    Placed,
    Seat,
    Sender,
    SubscriptionRow,
    TopicRow,
    Traits,
    missing,
)
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.port import Capabilities
from penstock.drivers.redis import keeping, scripts
from penstock.drivers.redis.entries import (
    OWN,
    bodies_of,
    check_name,
    key_pattern,
    opened,
    packed,
    paired,
    placed,
    sending,
    start_of,
    subscriptions_key,
    text,
    why_of,
)
from penstock.drivers.redis.feed import NOBODY, RedisFeed
from penstock.drivers.redis.notes import RedisNotes
from penstock.drivers.redis.quick import Quick
from penstock.vocabulary.errors import (
    AccessRefused,
    AckRefused,
    DeadLetterFull,
    DiskFull,
    InvalidArgument,
    InvalidName,
    PenstockError,
    PositionNotHeld,
    PublisherFenced,
    StorageError,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.limits import DEDUP_S, PUBLISHER_IDLE_S_MAX, RETAIN_S_DEFAULT
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.units import UnitWish

try:
    import redis.asyncio as aioredis
    from redis import exceptions as problems
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("redis", "redis") from error

T = TypeVar("T")

TOPICS: Final = OWN + ":topics"
UNCOVERED: Final = OWN + ":uncovered"
THEIRS: Final[dict[str, Any]] = {"retain_s": None}
"""The settings of a stream that another program made: nothing is removed."""
FORGET_PAGE: Final = 1_000
EPHEMERAL: Final = OWN + ":ephemeral:"
LIVE_S: Final = 5.0
"""A consumer that was heard of so lately counts as connected: a live one asks far oftener."""
COUNT_MAX: Final = 1_000
"""Where Redis does not tell how many messages wait, so many are counted."""
TRIM_S: Final = 1.0
TRIM_PAGE: Final = 200
TRIM_PAGES_MAX: Final = 100
_encode: Final = msgspec.msgpack.Encoder().encode


async def connect(address: Address) -> "RedisCarrier":
    """A connection, proved to work. Raises Unavailable, AccessRefused, InvalidArgument."""
    if len(address.hosts) > 1:
        raise InvalidArgument(f"{address.text} names several hosts; redis: URLs name one server")
    carrier = RedisCarrier(address)
    try:
        await carrier.open()
    except BaseException:
        await carrier.close()
        raise
    return carrier


class RedisCarrier(RedisNotes):
    """One connection to Redis."""

    traits = Traits(is_release_leased=True)

    def __init__(self, address: Address) -> None:
        self.capabilities: Capabilities = capabilities.REDIS
        self._address = address
        self._options = _connection_options(address)
        self.redis: Any = self.client()
        self._quick: Quick | None = None
        self._scripts: dict[str, Any] = {}
        self._trimmed: dict[str, float] = {}

    def client(self) -> Any:
        """A connection pool of its own."""
        return aioredis.Redis(**self._options)

    async def open(self) -> None:
        """Asks the server how safe it keeps what it confirms."""
        level = await self.call(self._level)
        patient = aioredis.Redis(**self._options | {"socket_timeout": None})
        self._quick = Quick(
            patient.connection_pool.make_connection, self._options["socket_timeout"],
            asyncio.get_running_loop(),
        )  # fmt: skip
        self.capabilities = msgspec.structs.replace(capabilities.REDIS, durability=level)

    async def close(self) -> None:
        if self._quick is not None:
            await self._quick.close()
        with suppress(Exception):
            await self.redis.aclose()

    async def _level(self) -> Durability:
        try:
            found = await self.redis.config_get("append*")
        except problems.ResponseError:  # a managed server keeps its configuration to itself
            info = await self.redis.info("persistence")
            return Durability.WRITTEN if info.get("aof_enabled") else Durability.MEMORY
        if found.get("appendonly") != "yes":
            return Durability.MEMORY
        return Durability.SYNCED if found["appendfsync"] == "always" else Durability.WRITTEN

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does something with Redis; its errors become ours here, and only here."""
        try:
            return await work()
        except (problems.RedisError, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Any) -> PenstockError:
        text = f"{self._address.text}: {error}"
        if isinstance(error, OSError):
            return Unavailable(text)
        if isinstance(error, problems.AuthenticationError | problems.NoPermissionError):
            return AccessRefused(f"{self._address.text} refused user and password, or the rights "
                                 f"of this user: {type(error).__name__}")  # fmt: skip
        if isinstance(error, problems.OutOfMemoryError):
            return DiskFull(text)
        if isinstance(error, problems.ConnectionError | problems.TimeoutError):
            return Unavailable(text)
        said = str(error)
        for start, kind in _ANSWERS.items():
            if start in said:
                return kind(text)
        return StorageError(text)

    async def run(self, script: str, bodies: Sequence[bytes] = (), **arguments: Any) -> Any:
        """Runs a script with these arguments."""
        made = self._script(script)
        words = [_encode(arguments), *bodies]
        if self._quick is not None:
            told = self._quick.ask(("EVALSHA", made.sha, 0, *words))
            answer = problems.NoScriptError() if told is None else await told
            if not isinstance(answer, Exception):
                return answer
            if not isinstance(answer, problems.NoScriptError):
                raise self._translated(answer) from answer
        return await self.call(lambda: made(args=words))

    def _script(self, script: str) -> Any:
        made = self._scripts.get(script)
        if made is None:
            made = self._scripts[script] = self.redis.register_script(script)
        return made

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self, topic: str, letters: Sequence[Letter], sender: Sender | None
    ) -> list[Placed]:
        script, arguments = sending(topic, letters, sender)
        answers = await self.call(lambda: self._script(script)(args=arguments))
        await self.trim(topic)
        return placed(answers)

    def post(
        self, topic: str, letters: Sequence[Letter], sender: Sender,
        told: Callable[[Outcome], None],
    ) -> bool:  # fmt: skip
        """Begins to send; the outcome is told on the loop."""
        if self._quick is None or self._trim_is_due(topic):
            return False
        script, arguments = sending(topic, letters, sender)

        def tell(answer: Any) -> None:
            if not isinstance(answer, Exception):
                told(placed(answer))
            elif isinstance(answer, problems.NoScriptError):
                told(Unavailable(f"{self._address.text} does not know the script yet"))
            else:
                told(self._translated(answer))

        return self._quick.send(("EVALSHA", self._script(script).sha, 0, *arguments), tell)

    async def commit(
        self, wish: UnitWish, parts: list[list[Letter]], acks: list[tuple[Feed, list[Letter]]]
    ) -> list[list[Placed]]:
        """Stores and finishes, all or nothing: one script."""
        named = list(zip(wish.parts, parts, strict=True))
        answer = await self.run(
            scripts.UNIT,
            bodies=[body for letters in parts for body in bodies_of(letters)],
            unit=f"{OWN}:unit:{wish.publisher.hex()}", epoch=wish.epoch, sequence=wish.sequence,
            seconds=int(DEDUP_S), idle=int(PUBLISHER_IDLE_S_MAX),
            parts=[
                {"stream": part.topic, "letters": [packed(part.topic, each) for each in letters]}
                for part, letters in named
            ],
            acks=[
                {
                    **cast("RedisFeed", feed).where,
                    "letters": [(letter.position, letter.attempt) for letter in letters],
                }
                for feed, letters in acks
            ],
        )  # fmt: skip
        if isinstance(answer, list):
            refused = [(ack, at, why_of(text(why))) for ack, at, why in answer[0]]
            raise AckRefused("some acks of the unit came too late", refused=refused)
        # Lua writes an empty list as an empty object.
        return [
            [Placed(None, id, state == 1) for id, state in places or ()]
            for places in json.loads(answer) or ()
        ]

    def _trim_is_due(self, topic: str) -> bool:
        return time.time() >= self._trimmed.get(topic, 0.0) + TRIM_S

    async def trim(self, topic: str, *, is_due: bool = False) -> None:
        """Removes what nobody needs any more, not oftener than useful."""
        if not is_due and not self._trim_is_due(topic):
            return
        self._trimmed[topic] = time.time()
        for _ in range(TRIM_PAGES_MAX):
            removed = await self.run(
                keeping.TRIM, stream=topic, retain=RETAIN_S_DEFAULT, page=TRIM_PAGE
            )
            if removed < TRIM_PAGE:
                break

    # -- consuming -------------------------------------------------------------------------------

    async def open_feed(self, seat: Seat) -> Feed:
        consumer = f"{seat.consumer}-{uuid4().hex[:12]}"
        group = seat.subscription or EPHEMERAL + consumer
        if seat.subscription is None:
            await self._begin(keeping.SUBSCRIBE, seat.topic, group, seat.start, policy="")
        # A read that finds nothing does not make its consumer known.
        await self.call(lambda: self.redis.xgroup_createconsumer(seat.topic, group, consumer))
        return RedisFeed(self, seat, group, consumer)

    # -- topics ----------------------------------------------------------------------------------

    async def find_topic(self, topic: str) -> TopicRow | None:
        check_name(topic)
        said = await self.call(lambda: self.redis.hget(TOPICS, topic))
        kind = text(await self.call(lambda: self.redis.type(topic)))
        if kind not in ("none", "stream"):
            raise InvalidName(
                f"topic {topic!r}: the Redis key of this name holds a {kind}, not a stream; choose "
                "another name"
            )
        if said is None and kind == "none":
            return None
        known: dict[str, Any] = json.loads(said) if said else {"policy": THEIRS}
        policy = msgspec.convert(known.get("policy", {}), TopicPolicy)
        count = added = size = 0
        if kind == "stream":
            info = await self.call(lambda: self.redis.xinfo_stream(topic))
            count, added = int(info["length"]), int(info.get("entries-added", info["length"]))
            size = int(await self.call(lambda: self.redis.memory_usage(topic)) or 0)
        return TopicRow(
            topic, policy, 1, count, size, added, known.get("created_at", 0.0),
            is_set=said is not None,
        )  # fmt: skip

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        while not await self.swap_topic(topic, partitions, policy, await self.find_topic(topic)):
            pass

    async def swap_topic(
        self, topic: str, partitions: int, policy: TopicPolicy, before: TopicRow | None
    ) -> bool:
        """Writes the settings over those of `before`; False when they are others by now."""
        check_name(topic)
        capabilities.check_topic_policy(self.capabilities, partitions, policy)
        said = text(await self.call(lambda: self.redis.hget(TOPICS, topic)) or b"")
        known = json.loads(said) if said else {}
        found = msgspec.convert(known.get("policy", {}), TopicPolicy) if said else None
        if found != (before.policy if before is not None and before.is_set else None):
            return False
        made = known.get("created_at") or time.time()
        row = {"policy": msgspec.to_builtins(policy), "created_at": made}
        done = await self.run(
            keeping.SWAP, key=TOPICS, stream=topic, before=said, after=json.dumps(row),
            is_new=before is None,
        )  # fmt: skip
        return bool(done)

    async def drop_topic(self, topic: str) -> None:
        last = text(
            await self.run(
                keeping.DROP, stream=topic, rows=[TOPICS, UNCOVERED],
                keys=[subscriptions_key(topic), f"{OWN}:readers:{topic}"],
            )
        )  # fmt: skip

        async def remembered() -> list[str]:
            patterns = [key_pattern(f"{OWN}:{kind}:{topic}\0") for kind in ("id", "publisher")]
            return [
                text(key) for each in patterns async for key in self.redis.scan_iter(match=each)
            ]

        keys = await self.call(remembered)
        for low in range(0, len(keys), FORGET_PAGE):
            await self.run(keeping.FORGET, keys=keys[low : low + FORGET_PAGE], last=last)

    async def list_topics(self) -> list[TopicRow]:
        async def listed() -> set[str]:
            found = {text(name) for name in await self.redis.hkeys(TOPICS)}
            async for key in self.redis.scan_iter(_type="stream", count=1000):
                found.add(text(key))
            return {name for name in found if not name.startswith(OWN)}

        rows = [await self.find_topic(name) for name in sorted(await self.call(listed))]
        return [row for row in rows if row is not None]

    # -- subscriptions ---------------------------------------------------------------------------

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        async def read() -> tuple[dict[Any, Any], list[dict[str, Any]]]:
            known = await self.redis.hgetall(subscriptions_key(topic))
            if not await self.redis.exists(topic):
                return known, []
            return known, await self.redis.xinfo_groups(topic)

        known, groups = await self.call(read)
        policies = {text(name): said for name, said in known.items()}
        found: list[SubscriptionRow] = []
        for group in groups:
            name = text(group["name"])
            if name.startswith(OWN):
                continue
            said = policies.get(name)
            policy = msgspec.convert(json.loads(said) if said else {}, SubscriptionPolicy)
            live = await self._live_consumers(topic, name)
            read_count, upto = group.get("entries-read"), text(group["last-delivered-id"])
            waiting, least = group.get("lag"), None
            if waiting is None:
                waiting, least = await self._counted(topic, upto)
            found.append(
                SubscriptionRow(
                    topic, name, policy,
                    live,
                    waiting, group["pending"],
                    None if read_count is None else read_count - group["pending"],
                    least, upto,
                )
            )  # fmt: skip
        return found

    async def _counted(self, topic: str, upto: str) -> tuple[int | None, int | None]:
        """How many messages are behind a position, or how many there are at least."""
        count, is_all = await self.run(keeping.WAITING, stream=topic, after=upto, most=COUNT_MAX)
        return (count, None) if is_all else (None, count)

    async def _live_consumers(self, topic: str, name: str) -> list[str]:
        rows = await self.call(lambda: self.redis.xinfo_consumers(topic, name))
        live = [text(row["name"]) for row in rows if row["idle"] < 1000 * LIVE_S]
        return [consumer.rpartition("-")[0] for consumer in live if consumer != NOBODY]

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        said = json.dumps(msgspec.to_builtins(policy))
        if start is None:
            await self.run(
                keeping.ALTER, stream=topic, group=name, key=subscriptions_key(topic), policy=said
            )
        else:
            await self._begin(keeping.SUBSCRIBE, topic, name, start, policy=said)

    async def drop_subscription(self, topic: str, name: str) -> None:
        await self.run(keeping.UNSUBSCRIBE, stream=topic, group=name, key=subscriptions_key(topic))
        await self.trim(topic, is_due=True)

    async def seek(self, topic: str, name: str, to: Any) -> None:
        await self._begin(keeping.SEEK, topic, name, to)

    async def _begin(self, script: str, topic: str, group: str, start: Any, **more: Any) -> None:
        """Lets a group begin somewhere. Raises PositionNotHeld, InvalidArgument."""
        at, position = start_of(start)
        answer = await self.run(
            script, stream=topic, group=group, at=at, position=position,
            key=subscriptions_key(topic), **more,
        )  # fmt: skip
        if isinstance(answer, list):
            lowest = text(answer[0])
            raise PositionNotHeld(
                f"topic {topic!r} does not hold position {start!r}; the lowest is "
                f"{lowest or 'none'!r}; 'earliest' and 'latest' are always held",
                lowest=lowest,
            )

    # -- looking ---------------------------------------------------------------------------------

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        if isinstance(after, int):
            raise Unsupported(
                "redis: messages have no offsets: give the position after which to look"
            )
        start = "-" if after is None else f"({after}"
        rows = await self.call(lambda: self.redis.xrange(topic, start, "+", count=limit))
        return [opened(text(id), paired(fields), 0) for id, fields in rows]

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        ids = [letter.position for letter in letters]
        if ids:
            await self.call(lambda: self.redis.xdel(topic, *ids))


_ANSWERS: Final[dict[str, type[PenstockError]]] = {
    "Invalid stream ID": InvalidArgument,
    "NOGROUP": UnknownSubscription,
    "no such key": UnknownTopic,
    "requires the key to exist": UnknownTopic,
    "FENCED": PublisherFenced,
    "DEADFULL": DeadLetterFull,
    "OOM": DiskFull,
    "MISCONF": DiskFull,
    "READONLY": Unavailable,
    "LOADING": Unavailable,
    "MASTERDOWN": Unavailable,
    "WRONGTYPE": InvalidName,
    "NOAUTH": AccessRefused,
    "WRONGPASS": AccessRefused,
    "NOPERM": AccessRefused,
}


def _connection_options(address: Address) -> dict[str, Any]:
    database = address.path.strip("/")
    if database and not database.isdecimal():
        raise InvalidArgument(f"{address.text} has the path {database!r}: a database is a number")
    host, port = address.hosts[0]
    options: dict[str, Any] = {
        "host": host, "port": port, "db": int(database or 0), "username": address.user,
        "password": address.password, "socket_connect_timeout": 2.0, "socket_timeout": 10.0,
        "protocol": 2, "retry": Retry(NoBackoff(), 0),  # whoever calls knows what may be repeated
    }  # fmt: skip
    if address.has_tls:
        options["ssl"] = True
        options["ssl_cert_reqs"] = ssl.CERT_REQUIRED
        for ours, theirs in (("tls_ca", "ssl_ca_certs"), ("tls_cert", "ssl_certfile"),
                             ("tls_key", "ssl_keyfile")):  # fmt: skip
            if ours in address.options:
                options[theirs] = address.options[ours]
    return options
