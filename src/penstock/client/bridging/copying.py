"""Copies a topic from one broker to another, and goes on where it stopped, however it stopped.

    async with penstock.connect(a) as source, penstock.connect(b) as target:
        ...                                     # or, with URLs:
    copied = await penstock.bridge("file:./edge", "penstock://hub", "readings")

Exactly once where the target has transactions; at least once elsewhere, and `Bridged.guarantee`
says which. Key, headers, id, body, priority and times stay what they are.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
from xxhash import xxh3_64_hexdigest

from penstock.client.bridging.portion import check_without, fit
from penstock.client.bridging.sources import (
    Ending,
    ReaderSource,
    Source,
    SubscriptionSource,
)
from penstock.client.bridging.targets import NumberTarget, Target, UnitTarget
from penstock.client.bridging.verify import Verified
from penstock.client.bridging.verifying import Proof
from penstock.client.client import Client, connect
from penstock.drivers.foreign.address import place_of
from penstock.vocabulary import names
from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import (
    InvalidArgument,
    PenstockError,
    TopicExists,
    Unavailable,
    UnknownTopic,
    Unsupported,
    UsageError,
)
from penstock.vocabulary.limits import DEDUP_S, UNIT_COUNT_MAX

log = logging.getLogger("penstock.bridge")

BATCH_DEFAULT: Final = 1_000
BATCH_MAX: Final = UNIT_COUNT_MAX - 1
IDLE_S_DEFAULT: Final = 2.0
PAUSE_S_FIRST: Final = 0.2
PAUSE_S_MAX: Final = 5.0

EXACTLY_ONCE: Final = "exactly once"
AT_LEAST_ONCE: Final = "at least once"
ONCE_FOR_A_WHILE: Final = (
    f"at least once; what is sent again within {DEDUP_S / 60:.0f} minutes is stored once"
)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy, and how."""

    topic: str
    to_topic: str | None = None
    """None = the same name."""
    subscription: str | None = None
    """Where the source keeps how far this got; None = a name made from the target."""
    follow: bool = False
    """Go on when the end is reached, until told to stop."""
    batch: int = BATCH_DEFAULT
    consume: bool = False
    """Take messages from a shared subscription although the source has readers."""
    idle_s: float = IDLE_S_DEFAULT
    """From a subscription: silence that counts as the end."""
    without: Iterable[str] = ()
    """Fields to leave out: priority, delay, expiry."""
    verify: bool = False
    """Compare afterwards what source and target hold."""


class Bridged(msgspec.Struct):
    """What was done."""

    source: str
    target: str
    topic: str
    to_topic: str
    subscription: str
    copied: int = 0
    """Messages that are new in the target."""
    known: int = 0
    """Messages that the target had already."""
    bytes: int = 0
    seconds: float = 0.0
    guarantee: str = ""
    verified: Verified | None = None


Told = Callable[[Bridged], None]


async def bridge(
    source: str, target: str, topic: str | None = None, *, wanted: Wanted | None = None,
    ending: Ending | None = None, told: Told | None = None,
) -> Bridged:  # fmt: skip
    """Copies a topic between two URLs; returns at the end of the source, or when told to stop.

    With `wanted.follow` it lives through the loss of either broker. Raises UnknownTopic,
    Unsupported for what the target cannot keep, ReaderFenced when another bridge took over.
    """
    wanted = _checked(wanted, topic)
    to_topic = wanted.to_topic or wanted.topic
    shown = [without_credentials(url) for url in (source, target)]
    if source == target and to_topic == wanted.topic:
        raise InvalidArgument("source and target are the same topic: name another with --to-topic")
    name = wanted.subscription or default_name(place_of(target), to_topic)
    names.check_subscription(name)
    found = Bridged(shown[0], shown[1], wanted.topic, to_topic, name)
    ending = ending or Ending(follows=wanted.follow)
    began = time.monotonic()
    pause = PAUSE_S_FIRST
    while True:
        before = found.copied
        try:
            await _once(source, target, wanted, found, ending, told or _nobody)
            found.seconds = time.monotonic() - began
            return found
        except Unavailable as error:
            if not ending.follows or ending.was_told():
                raise
            pause = PAUSE_S_FIRST if found.copied > before else min(2 * pause, PAUSE_S_MAX)
            log.warning("%s; trying again in %.1f s", error, pause)
        await ending.pause(pause)


def default_name(target: str, to_topic: str) -> str:
    """The subscription of a bridge that was given none; the same for the same target."""
    return f"bridge-{xxh3_64_hexdigest(f'{target} {to_topic}'.encode())}"


async def _once(
    source: str, target: str, wanted: Wanted, found: Bridged, ending: Ending, told: Told
) -> None:
    async with connect(source) as origin:
        comes = _source(origin, wanted, found.subscription)
        identity = await comes.open()
        async with connect(target, publisher=f"bridge/{identity}") as goal:
            goes = _target(goal, found.to_topic)
            proof = Proof(origin, goal, wanted, found.subscription, comes)
            proof.check()
            await _make_topic(origin, goal, wanted.topic, found.to_topic)
            await goes.open(identity)
            await proof.begin()
            try:
                await _copy(comes, goes, goal, wanted, found, ending, told, proof)
            except BaseException:
                with suppress(PenstockError):
                    await comes.close()  # what is safe so far is noted
                raise
            await comes.close()
            found.guarantee = guarantee(goes, goal, has_numbers=comes.has_numbers)
            if wanted.verify:
                found.verified = await proof.end(found.to_topic)


def _source(client: Client, wanted: Wanted, name: str) -> Source:
    if client.capabilities.has_readers and not wanted.consume:
        return ReaderSource(client, wanted.topic, name, wanted.batch)
    return SubscriptionSource(client, wanted.topic, name, wanted.batch, wanted.idle_s)


def _target(client: Client, topic: str) -> Target:
    if client.capabilities.has_transactions:
        return UnitTarget(client, topic)
    return NumberTarget(client, topic)


async def _make_topic(source: Client, target: Client, topic: str, to_topic: str) -> None:
    """A new topic of the target has as many partitions as the source's, where it can."""
    partitions = 1
    try:
        partitions = int((await source.describe_topic(topic))["partitions"])
        await target.describe_topic(to_topic)
    except UnknownTopic:
        with suppress(Unsupported, TopicExists):
            await target.create_topic(to_topic, partitions)


def guarantee(target: Target, client: Client, *, has_numbers: bool | None) -> str:
    """How often a message may be in the target."""
    if isinstance(target, UnitTarget) and has_numbers:
        return EXACTLY_ONCE
    return ONCE_FOR_A_WHILE if client.capabilities.has_dedup else AT_LEAST_ONCE


async def _copy(
    comes: Source, goes: Target, goal: Client, wanted: Wanted, found: Bridged, ending: Ending,
    told: Told, proof: Proof,
) -> None:  # fmt: skip
    without = check_without(wanted.without)
    wall = goal._opened()  # noqa: SLF001 - a part of the client
    async for portion in comes.portions(goes.done, ending):
        fit(portion, goal.capabilities, without, wall.wall)
        new = await goes.store(portion)
        await comes.safe(portion)
        found.copied += new
        found.known += portion.count - new
        found.bytes += portion.size
        if not found.guarantee:
            found.guarantee = guarantee(goes, goal, has_numbers=comes.has_numbers)
        proof.copied(portion)
        told(found)
        await asyncio.sleep(0)


def _checked(wanted: Wanted | None, topic: str | None) -> Wanted:
    if wanted is None:
        wanted = Wanted(topic=topic or "")
    elif topic is not None:
        wanted = msgspec.structs.replace(wanted, topic=topic)
    names.check_topic(wanted.topic, reserved=True)
    if wanted.to_topic is not None:
        names.check_topic(wanted.to_topic)
    check_without(wanted.without)
    if not 1 <= wanted.batch <= BATCH_MAX:
        raise InvalidArgument(f"a batch has 1 to {BATCH_MAX} messages, not {wanted.batch!r}")
    if wanted.verify and wanted.follow:
        raise UsageError("--verify needs an end: leave --follow out")
    return wanted


def _nobody(_found: Bridged) -> None:
    """Nobody wants to know."""
