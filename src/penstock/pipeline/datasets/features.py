"""Feature flags: which are active, where they are published, and how they are read.

    {"release": [], "operational": ["logging", "validation"], "experiment": [], "permission": []}

The topic keeps its last message; whoever wants to know reads it again, which is cheap, so that a
change is followed without a restart. The version is the offset of that message.
"""

from typing import Any, Final

import msgspec

from penstock.vocabulary.errors import InvalidArgument, UnknownTopic

TOPIC: Final = "system.feature"
NAME: Final = "env.active.features"
VALIDATION: Final = "validation"
LOGGING: Final = "logging"
LOOK: Final = 100
"""Messages looked at in one go."""


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
        self.version = -1
        self.features = Features()

    async def read(self) -> Features:
        """The newest features; what is no list of features leaves the last ones in force."""
        while True:
            try:
                found = await self._client.peek(TOPIC, LOOK, partition=0, after=self.version + 1)
            except UnknownTopic:
                return self.features
            for message in found:
                if message.offset is not None:
                    self.version = message.offset
                try:
                    self.features = msgspec.json.decode(message.body or b"", type=Features)
                except msgspec.MsgspecError:
                    continue
            # A broker that is not ours may have no offsets: all it holds is looked at each time.
            if len(found) < LOOK or found[-1].offset is None:
                return self.features

    async def publish(self, features: Features) -> None:
        """Makes these the active features; durable when it returns."""
        try:
            await self._client.describe_topic(TOPIC)
        except UnknownTopic:
            await self._client.create_topic(TOPIC, keep_last=1)
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
            await self.read()
        return wanted
