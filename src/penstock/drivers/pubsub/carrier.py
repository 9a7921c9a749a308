"""A connection to Pub/Sub: topics, subscriptions, and what is sent."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.drivers import capabilities
from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import (
    Feed,
    Placed,
    Seat,
    Sender,
    SubscriptionRow,
    TopicRow,
    Traits,
)
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.reaching import answered
from penstock.drivers.pubsub import names as ids
from penstock.drivers.pubsub import settings
from penstock.drivers.pubsub.feed import PubSubFeed
from penstock.drivers.pubsub.look import Looking
from penstock.drivers.pubsub.records import Record, chains_of, packed
from penstock.drivers.pubsub.service import Service, mask, moment, seconds
from penstock.vocabulary import names
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidArgument,
    PenstockError,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

EPOCH: Final = 1.0
"""A time before every message."""
EXISTS: Final = "ALREADY_EXISTS"
PASSING_S: Final = settings.DAY
"""A subscription of a consumer that died is gone after this; Pub/Sub has nothing shorter."""
CHAINS_MAX: Final = 32
"""Requests of different ordering keys that are under way together."""
SPARED_MAX: Final = 100_000


async def connect(address: Address) -> "PubSubCarrier":
    """A connection, proved to work. Raises Unavailable, AccessRefused, InvalidArgument."""
    if len(address.hosts) > 1 or address.hosts[0][1] or address.path.strip("/"):
        raise InvalidArgument(
            f"{address.text} is not 'pubsub://PROJECT': name one project, without port and path"
        )
    if address.user is not None or address.password is not None:
        raise InvalidArgument(
            "pubsub: URLs take no user and password: Google's credentials are found by "
            "GOOGLE_APPLICATION_CREDENTIALS or 'gcloud auth application-default login'"
        )
    carrier = PubSubCarrier(address)
    try:
        await answered(address, carrier.open())
    except BaseException:
        await carrier.close()
        raise
    return carrier


class PubSubCarrier(Looking):
    """One connection to Pub/Sub."""

    capabilities = capabilities.PUBSUB
    traits = Traits(release_s_max=float(settings.DEADLINE_S_MAX))

    def __init__(self, address: Address) -> None:
        self.service = Service(address)
        self.has_waiting_pulls = not self.service.is_emulator
        self._is_exact = bool(address.options.get("exactly_once"))
        self._feeds: dict[PubSubFeed, str] = {}
        self._policies: dict[str, TopicPolicy] = {}
        self._paths: dict[tuple[str, str], str] = {}
        """(Topic, subscription) → full name, where another program chose it."""
        self.spared: dict[tuple[str, str], int] = {}
        """(Subscription, message) → deliveries here that never reached the application."""

    async def open(self) -> None:
        """Asks for a topic, whether there is one or not."""
        # An account may publish and not look: that shows when it is asked to.
        with suppress(UnknownTopic, AccessRefused):
            await self.service.call("GetTopic", topic=self.service.topic("penstock"))

    async def close(self) -> None:
        with suppress(Exception):
            await self.service.close()

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        letters: Sequence[Letter],
        sender: Sender | None,  # noqa: ARG002
    ) -> list[Placed]:
        """A repeated call sends only what the first one did not see confirmed."""
        missing = [letter for letter in letters if not isinstance(letter.token, Placed)]
        records = [packed(topic, letter) for letter in missing]
        chains = chains_of(records)
        free = asyncio.Semaphore(CHAINS_MAX)
        results = await asyncio.gather(
            *(self._send_chain(topic, missing, records, chain, free) for chain in chains),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [letter.token for letter in letters]

    async def _send_chain(
        self, topic: str, letters: Sequence[Letter], records: Sequence[Record],
        chain: list[list[int]], free: asyncio.Semaphore,
    ) -> None:  # fmt: skip
        for group in chain:
            async with free:
                placed = await self.service.publish(
                    ids.topic_id(topic), [records[at] for at in group]
                )  # fmt: skip
            for at, message_id in zip(group, placed, strict=True):
                letters[at].token = Placed(None, message_id)

    # -- consuming -------------------------------------------------------------------------------

    async def open_feed(self, seat: Seat) -> Feed:
        if seat.subscription is None:
            check_start(seat.start)
            path, now = self.service.subscription(ids.passing_id("consumer")), time.time()
            await self._create(seat.topic, path, seat.policy, {}, PASSING_S, is_counted=False)
            await self._begin(path, seat.start, now)
        else:
            path = await self._path(seat.topic, seat.subscription)
        found = await self._subscription(path)
        feed = PubSubFeed(
            self, seat, path, is_exact=found.enable_exactly_once_delivery,
            counts=bool(found.dead_letter_policy.dead_letter_topic),
        )  # fmt: skip
        self._feeds[feed] = path
        return feed

    async def leave(self, feed: PubSubFeed, path: str) -> None:
        """A consumer is gone."""
        self._feeds.pop(feed, None)
        if feed.seat.subscription is None:
            with suppress(PenstockError):
                await self.service.call("DeleteSubscription", subscription=path)

    def spare(self, path: str, message_id: str) -> None:
        """A delivery never reached the application: its attempt does not count here."""
        place = path, message_id
        self.spared[place] = self.spared.get(place, 0) + 1
        while len(self.spared) > SPARED_MAX:
            del self.spared[next(iter(self.spared))]

    # -- topics ----------------------------------------------------------------------------------

    async def find_topic(self, topic: str) -> TopicRow | None:
        try:
            found = await self.service.call(
                "GetTopic", topic=self.service.topic(ids.topic_id(topic))
            )
        except UnknownTopic:
            return None
        return self._topic_row(topic, found)

    def _topic_row(self, topic: str, found: Any) -> TopicRow:
        policy = settings.policy_of(found.labels, TopicPolicy)
        self._policies[topic] = policy
        return TopicRow(topic, policy, 1, None, None, None)

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        settings.check_topic(self.capabilities, partitions, policy)
        id = ids.topic_id(topic)
        fields = {
            "name": self.service.topic(id),
            "labels": ids.labels_of(id, topic, settings.told(policy)),
            "message_retention_duration": seconds(settings.retained_s(policy)),
        }
        try:
            await self.service.call("CreateTopic", **fields)
        except PenstockError as error:
            if error.details.get("code") != EXISTS:
                raise
            await self._update("UpdateTopic", topic=fields)
            await self._pass_on(topic, policy)
        self._policies[topic] = policy
        if policy.dead_of is not None:
            await self._keep(topic)

    async def _pass_on(self, topic: str, policy: TopicPolicy) -> None:
        """Subscriptions hold their messages as long as the topic says."""
        length = seconds(settings.held_s(policy, is_emulator=self.service.is_emulator))
        for path in await self.service.subscriptions_of(ids.topic_id(topic)):
            fields = {"name": path, "message_retention_duration": length}
            await self._update("UpdateSubscription", subscription=fields)

    async def ensure_dead(self, topic: str) -> None:
        """Creates a dead-letter topic, with the subscription that holds its letters."""
        if await self.find_topic(topic) is None:
            source, _, subscription = topic.partition(names.DEAD_MARK)
            policy = TopicPolicy(retain_s=None, dead_of=f"{source}\n{subscription}")
            await self.put_topic(topic, 1, policy)

    async def store_dead(self, topic: str, letters: Sequence[Letter]) -> None:
        """Stores letters in a dead-letter topic, which is created when missing."""
        if topic not in self._policies:
            await self.ensure_dead(topic)
        try:
            await self.send(topic, letters, None)
        except UnknownTopic:
            await self.ensure_dead(topic)
            await self.send(topic, letters, None)

    async def _keep(self, topic: str) -> None:
        path = self.service.subscription(ids.keeper_id(topic))
        await self._create(topic, path, SubscriptionPolicy(), {}, None, is_counted=False)

    async def drop_topic(self, topic: str) -> None:
        id = ids.topic_id(topic)
        self._policies.pop(topic, None)
        for path in await self.service.subscriptions_of(id):
            with suppress(UnknownSubscription, UnknownTopic):
                await self.service.call("DeleteSubscription", subscription=path)
        await self.service.call("DeleteTopic", topic=self.service.topic(id))

    async def list_topics(self) -> list[TopicRow]:
        found: list[TopicRow] = []
        for each in await self.service.topics():
            topic = ids.topic_of(each.name.rpartition("/")[2], each.labels)
            if topic is not None:
                found.append(self._topic_row(topic, each))
        return found

    # -- subscriptions ---------------------------------------------------------------------------

    async def _path(self, topic: str, name: str) -> str:
        if (topic, name) not in self._paths:
            await self.list_subscriptions(topic)
        made = self.service.subscription(ids.subscription_id(topic, name))
        return self._paths.get((topic, name), made)

    async def _subscription(self, path: str) -> Any:
        return await self.service.call("GetSubscription", subscription=path)

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        try:
            paths = await self.service.subscriptions_of(ids.topic_id(topic))
        except UnknownTopic:
            return []
        listed = await asyncio.gather(
            *(self._subscription(path) for path in paths), return_exceptions=True
        )
        found: list[SubscriptionRow] = []
        for each in listed:
            if isinstance(each, UnknownSubscription | UnknownTopic):
                continue  # deleted meanwhile
            if isinstance(each, BaseException):
                raise each
            name = ids.subscription_of(topic, each.name.rpartition("/")[2], each.labels)
            if name is None:
                continue
            self._paths[topic, name] = each.name
            policy = settings.policy_of(each.labels, SubscriptionPolicy)
            live = [feed.seat.consumer for feed, path in self._feeds.items() if path == each.name]
            found.append(SubscriptionRow(topic, name, policy, live))
        return found

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        settings.check_subscription(policy)
        if start is None:
            await self._change(topic, name, policy)
            return
        check_start(start)
        id = ids.subscription_id(topic, name)
        path = self.service.subscription(id)
        labels = ids.labels_of(id, name, settings.told(policy))
        idle_s = MEMBER_IDLE_S_MAX if names.MEMBER_MARK in name else None
        dead = names.dead_topic(topic, name)
        is_counted = settings.is_counted(policy) and not names.is_dead_topic(topic)
        if is_counted:
            await self.ensure_dead(dead)
        now = time.time()
        if await self._create(
            topic, path, policy, labels, idle_s, is_counted=is_counted, dead=dead
        ):  # fmt: skip
            await self._begin(path, start, now)

    async def _create(
        self, topic: str, path: str, policy: SubscriptionPolicy, labels: dict[str, str],
        idle_s: float | None, *, is_counted: bool, dead: str = "",
    ) -> bool:  # fmt: skip
        """Makes a subscription; False when somebody else was quicker."""
        kept = self._policies.get(topic, TopicPolicy())
        fields: dict[str, Any] = {
            "name": path,
            "topic": self.service.topic(ids.topic_id(topic)),
            "labels": labels,
            "ack_deadline_seconds": settings.deadline_s(policy),
            "message_retention_duration": seconds(
                settings.held_s(kept, is_emulator=self.service.is_emulator)
            ),
            # Without an idle time it never expires; by itself it would after 31 days.
            "expiration_policy": {"ttl": seconds(idle_s)} if idle_s else {},
            "enable_message_ordering": policy.kind is Kind.KEY_SHARED,
            "enable_exactly_once_delivery": self._is_exact and bool(labels),  # durable ones
        }
        if is_counted:
            fields["dead_letter_policy"] = self._dead_policy(dead)
        try:
            await self.service.call("CreateSubscription", **fields)
        except PenstockError as error:
            if error.details.get("code") != EXISTS:
                raise
            return False
        return True

    def _dead_policy(self, dead: str) -> dict[str, Any]:
        return {
            "dead_letter_topic": self.service.topic(ids.topic_id(dead)),
            "max_delivery_attempts": settings.COUNTED_MAX,
        }

    async def _change(self, topic: str, name: str, policy: SubscriptionPolicy) -> None:
        path = await self._path(topic, name)
        fields: dict[str, Any] = {
            "name": path,
            "labels": ids.labels_of(path.rpartition("/")[2], name, settings.told(policy)),
            "ack_deadline_seconds": settings.deadline_s(policy),
        }
        if settings.is_counted(policy) and not names.is_dead_topic(topic):
            dead = names.dead_topic(topic, name)
            await self.ensure_dead(dead)
            fields["dead_letter_policy"] = self._dead_policy(dead)
        await self._update("UpdateSubscription", subscription=fields, clears=["dead_letter_policy"])

    async def _update(self, method: str, clears: Sequence[str] = (), **wanted: Any) -> None:
        """Changes the fields that are given, and empties those that may be cleared."""
        [fields] = wanted.values()
        changed = {*fields, *clears} - {"name"}
        try:
            await self.service.call(method, **wanted, update_mask=mask(*sorted(changed)))
        except InvalidArgument as error:
            if "update_mask" not in error.text:
                raise
            raise Unsupported(
                f"{fields['name']}: this emulator cannot change settings; delete it first, then "
                "create it anew"
            ) from error

    async def drop_subscription(self, topic: str, name: str) -> None:
        path = await self._path(topic, name)
        self._paths.pop((topic, name), None)
        await self.service.call("DeleteSubscription", subscription=path)

    async def seek(self, topic: str, name: str, to: Any) -> None:
        check_start(to)
        path = await self._path(topic, name)
        at = {"earliest": EPOCH, "latest": time.time() + 1}.get(to, to)
        await self.service.call("Seek", subscription=path, time=moment(max(at, EPOCH)))

    async def _begin(self, path: str, start: Any, made_at: float) -> None:
        """A new subscription begins with what its topic retains, or with what comes now."""
        is_emulator = self.service.is_emulator
        if start == "latest" and not is_emulator:
            return  # a new subscription does so by itself, except in one emulator
        at = {"earliest": EPOCH, "latest": made_at}.get(start, start)
        try:
            await self.service.call("Seek", subscription=path, time=moment(max(at, EPOCH)))
        except Unsupported:
            if start == "earliest" and is_emulator:
                return  # an emulator that cannot seek begins there
            raise


def check_start(start: Any) -> None:
    """Raises Unsupported for a position, InvalidArgument for what is no start at all."""
    if start in {"earliest", "latest"}:
        return
    if isinstance(start, int | float) and not isinstance(start, bool):
        return
    raise Unsupported(
        f"start {start!r}: pubsub: subscriptions begin at 'earliest', 'latest' or Unix seconds, "
        "not at a position"
    )
