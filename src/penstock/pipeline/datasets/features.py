"""Feature flags: which are active, where they are published, and how they are read.

    {"release": [], "operational": ["logging", "validation"], "experiment": [], "permission": []}

The topic keeps its last message; whoever wants to know reads it again, which is cheap, so that a
change is followed without a restart. The version is the offset of that message; where messages have
no offsets, their count.

A broker that cannot keep the last message, or cannot show it (`Capabilities.has_last`), leaves it
to those who listen: a view then holds the features itself, and `follow` hears of changes.
"""

import asyncio
import logging
from asyncio import Event
from typing import Any, Final

import msgspec

from penstock.pipeline.datasets.topics import ensure_topic
from penstock.vocabulary.errors import InvalidArgument, PenstockError, UnknownTopic

log = logging.getLogger("penstock.pipeline")

TOPIC: Final = "system.feature"
NAME: Final = "env.active.features"
VALIDATION: Final = "validation"
LOGGING: Final = "logging"
LOOK: Final = 100
"""Messages looked at in one go."""
FOLLOW_S: Final = 1.0
"""How often the topic is looked at."""
RETAINED_S: Final = 0.5
"""How long a broker may take to hand out the message it retained."""


class Features(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The active features of each kind."""

    release: tuple[str, ...] = ()
    operational: tuple[str, ...] = (LOGGING, VALIDATION)
    experiment: tuple[str, ...] = ()
    permission: tuple[str, ...] = ()

    @property
    def has_validation(self) -> bool:
        """True when range rules are asked."""
        return VALIDATION in self.operational

    @property
    def has_logging(self) -> bool:
        """True when services write a line for each request and batch."""
        return LOGGING in self.operational


class FeatureView:
    """The features as one client sees them. `client` is any open client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._after: int | str = 0
        self._is_ready = Event()
        self.version = -1
        self.features = Features()

    @property
    def is_kept(self) -> bool:
        """False when the broker keeps no features: they last as long as this view."""
        return bool(_settings(self._client.capabilities) or self._client.capabilities.has_last)

    async def read(self) -> Features:
        """The newest features; what is no list of features leaves the last ones in force."""
        while self._client.capabilities.has_last:
            try:
                found = await self._client.peek(TOPIC, LOOK, after=self._after)
            except UnknownTopic:
                break
            for message in found:
                has_offset = message.offset is not None
                self.version = message.offset if has_offset else self.version + 1
                self._after = message.offset + 1 if has_offset else message.position
                self._take(message.body)
            if len(found) < LOOK:
                break
        return self.features

    def _take(self, body: bytes | None) -> None:
        self.features = said(body, self.features)

    async def prepare(self) -> None:
        """Sees to it that the topic is there and keeps its last message, whoever made it."""
        settings = _settings(self._client.capabilities)
        if await ensure_topic(self._client, TOPIC, 1, **settings) or "keep_last" not in settings:
            return
        policy = (await self._client.describe_topic(TOPIC)).get("policy", {})
        if not policy.get("keep_last"):
            await self._client.alter_topic(TOPIC, **settings)

    async def publish(self, features: Features) -> None:
        """Makes these the active features; durable when it returns."""
        await self.prepare()
        body = msgspec.json.encode(features)
        await self._client.publish(
            TOPIC, body, key=NAME, headers={"content-type": "application/json"}
        )

    async def change(self, **lists: list[str]) -> Features:
        """Replaces some of the lists, and publishes when that changes anything."""
        current = await self.read()
        for kind in lists:
            if kind not in Features.__struct_fields__:
                known = ", ".join(Features.__struct_fields__)
                raise InvalidArgument(f"there is no kind of feature {kind!r}; known: {known}")
        wanted = msgspec.structs.replace(
            current, **{kind: tuple(dict.fromkeys(names)) for kind, names in lists.items()}
        )
        if wanted != current:
            await self.publish(wanted)
            if self._client.capabilities.has_last:
                await self.read()
            else:
                self.features = wanted
        return wanted

    # -- following -------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Returns once `follow`, which runs, has read what is there."""
        await self._is_ready.wait()

    async def follow(self) -> None:
        """Keeps `features` as they are published, until it is cancelled."""
        look = self._look if self._client.capabilities.has_last else self._listen
        is_told = False
        while True:
            try:
                await look()
                is_told = False
            except PenstockError as error:
                if not is_told:
                    log.warning("features cannot be followed just now: %s", error)
                is_told = True
            except Exception:
                log.exception("features cannot be followed just now")
            self._is_ready.set()
            await asyncio.sleep(FOLLOW_S)

    async def _look(self) -> None:
        before = self.features
        await self.read()
        if self.features != before:
            log.info("features are now %s", msgspec.to_builtins(self.features))

    async def _listen(self) -> None:
        """Hears what is published from now on, and before that what the broker retained."""
        settings = _settings(self._client.capabilities)
        await ensure_topic(self._client, TOPIC, 1, **settings)
        start = "earliest" if settings else "latest"
        async with self._client.subscribe(TOPIC, start=start) as deliveries:
            retained = await deliveries.receive(timeout_s=RETAINED_S) if settings else None
            if retained is not None:
                self._hear(retained)
            self._is_ready.set()
            async for message in deliveries:
                self._hear(message)

    def _hear(self, message: Any) -> None:
        self._take(message.body)
        message.ack()
        log.info("features are now %s", msgspec.to_builtins(self.features))


def said(body: bytes | None, before: Features) -> Features:
    """The features that a message says; those before it when it is no list of features."""
    try:
        return msgspec.json.decode(body or b"", type=Features)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        log.warning("a message of %s is no list of features: %s", TOPIC, error)
        return before


def _settings(can: Any) -> dict[str, Any]:
    """What the topic of features asks of its broker."""
    if "keep_last" in can.topic_settings:
        return {"keep_last": 1}
    return {"retain_s": None} if can.has_last else {}
