"""The proof of a bridge: the source is read a second time, the target looked at, both compared.

While a proof is under way, a reader of its own keeps in the source what is copied meanwhile. It is
released at the end; one that a killed bridge left behind is taken over, or removed.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.batch.frame import gather
from penstock.client.bridging.portion import Portion, check_without, fit, picked
from penstock.client.bridging.sources import ReaderSource, Source
from penstock.client.bridging.targets import is_by_id, with_times_in_headers
from penstock.client.bridging.verify import (
    Expected,
    Verified,
    fields_that_differ,
    read_target,
    rows_of,
)
from penstock.client.client import Client
from penstock.client.reader import Reader
from penstock.vocabulary.errors import PenstockError, UnknownSubscription, Unsupported

if TYPE_CHECKING:
    from penstock.client.bridging.copying import Wanted


class Proof:
    """What a bridge does for `--verify`; without it only what an earlier one left is removed."""

    def __init__(
        self, source: Client, target: Client, wanted: "Wanted", subscription: str, comes: Source
    ) -> None:
        self._source = source
        self._target = target
        self._wanted = wanted
        self._name = f"{subscription}.verify"
        self._has_reader = isinstance(comes, ReaderSource)
        self._reader: Reader | None = None
        self._without = check_without(wanted.without)
        self._expected: Expected | None = None
        """Told of what is copied, when the source cannot be read again."""

    def check(self) -> None:
        """Raises Unsupported when the target cannot be looked at."""
        can = self._target.capabilities
        if self._wanted.verify and not can.can_peek_all:
            raise Unsupported(
                f"--verify looks at everything the target holds, which {can.scheme}: URLs cannot "
                "show: nothing was copied; leave --verify out"
            )

    async def begin(self) -> None:
        """From now on the source keeps what it holds, until the end."""
        topic = self._wanted.topic
        if not self._wanted.verify:
            if self._has_reader and await self._is_left(topic):
                await (await self._open(topic)).release(force=True)
            return
        if self._has_reader:
            self._reader = await self._open(topic)
        else:
            self._expected = Expected()

    async def _is_left(self, topic: str) -> bool:
        rows = await self._source.subscriptions(topic)
        return any(row["subscription"] == self._name for row in rows)

    async def _open(self, topic: str) -> Reader:
        owner = f"bridge-verify/{os.urandom(6).hex()}"
        return await self._source.reader(topic, self._name, owner=owner)

    def copied(self, portion: Portion) -> None:
        """These are in the target."""
        if self._expected is None:
            return
        if is_by_id(portion, self._target.capabilities):
            portion = with_times_in_headers(portion)
            self._expected.has_times = False
            # What the source handed out twice is there once: the target knew its id.
            portion = picked(portion, self._expected.lacks(portion))
        self._expected.add(portion)

    async def end(self, to_topic: str) -> Verified:
        """Compares, and lets the source go."""
        try:
            expected = self._expected or await self._read_source()
            await read_target(self._target, to_topic, expected)
            verified, row = expected.outcome()
            return await self._with_fields(verified, row)
        finally:
            if self._reader is not None:
                with suppress(PenstockError):
                    await self._reader.release(force=True)

    async def _read_source(self) -> Expected:
        assert self._reader is not None
        expected = Expected()
        await self._reader.plan(None)
        for partition, start, end in await self._reader.planned():
            async for batch in self._reader.batches(partition, start, end):
                numbers, columns = gather(batch.frames)
                expected.add(self._fitted(Portion(partition, columns, numbers)))
        return expected

    def _fitted(self, portion: Portion) -> Portion:
        """As the target has them; what expired is not looked for."""
        now = self._target._opened().wall  # noqa: SLF001 - a part of the client
        if portion.columns.expires_at is not None and "expiry" not in self._without:
            ends = portion.columns.expires_at
            portion = picked(portion, [at for at, each in enumerate(ends) if not 0 < each <= now])
        if portion.count:
            fit(portion, self._target.capabilities, self._without, now)
        return portion

    async def _with_fields(self, verified: Verified, row: tuple[Any, ...] | None) -> Verified:
        """Tells what is different of a changed message."""
        difference = verified.difference
        if difference is None or row is None or self._reader is None:
            return verified
        partition, _, number = difference.source.partition(":")
        with suppress(UnknownSubscription):
            start = int(number)
            async for batch in self._reader.batches(int(partition), start, start + 1):
                _, columns = gather(batch.frames)
                portion = self._fitted(Portion(int(partition), columns, [start]))
                ((_, _, ours),) = rows_of(portion.columns)
                named = msgspec.structs.replace(difference, fields=fields_that_differ(ours, row))
                return msgspec.structs.replace(verified, difference=named)
        return verified
