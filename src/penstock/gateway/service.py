"""A running gateway: a client of a broker, topics and readers that exist, and a listener."""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Mapping
from typing import Final, Self

from penstock.client.client import Client, connect
from penstock.gateway.api import Api
from penstock.gateway.http import HttpServer
from penstock.gateway.keys import Keys
from penstock.pipeline.datasets import finding
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.features import FeatureView
from penstock.pipeline.datasets.topics import REPLAY_S, ensure_topic
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Kind

log = logging.getLogger("penstock.gateway")

PORT: Final = 8081
HOST: Final = "127.0.0.1"


class Gateway:
    """`async with Gateway(url) as gateway`: serving until the block is left.

    Without keys it serves this machine only. Raises InvalidArgument, OSError.
    """

    def __init__(
        self, url: str, *, host: str = HOST, port: int = PORT, keys: Keys | None = None,
        datasets: tuple[str, ...] = (), readers: Mapping[str, str] | None = None,
        client: Client | None = None,
    ) -> None:  # fmt: skip
        """`readers`: the subscription of the pipeline that reads a dataset, by its name."""
        if keys is None and not _is_loopback(host):
            raise InvalidArgument(
                f"without API keys the gateway serves this machine only, not {host!r}: give a key "
                "file, or leave the host out"
            )
        found = [finding.find(name) for name in (*finding.known(), *datasets)]
        self._datasets: dict[str, Dataset] = {}
        for each in found:
            if self._datasets.setdefault(each.name, each) is not each:
                raise InvalidArgument(f"there are two datasets named {each.name!r}")
        self._readers = dict(readers or {})
        for name in self._readers:
            if name not in self._datasets:
                known = ", ".join(self._datasets)
                raise InvalidArgument(f"there is no dataset {name!r} for a reader; known: {known}")
        self._keys = keys
        self._host = host
        self._asked_port = port
        self._own_client = client is None
        self._client = client if client is not None else connect(url)
        self._server: HttpServer | None = None
        self._following: asyncio.Task[None] | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        try:
            await self._client.open()
            for dataset in self._datasets.values():
                reader = self._readers.get(dataset.name, dataset.table)
                await prepare(self._client, dataset, reader)
            features = await self._follow()
            api = Api(self._client, self._datasets, self._keys, features)
            self._server = HttpServer(api.handle)
            self.port = await self._server.start(self._host, self._asked_port)
        except BaseException:
            await self.close()
            raise
        return self

    async def _follow(self) -> FeatureView:
        """The active features, read and followed from now on."""
        features = FeatureView(self._client)
        await features.prepare()
        self._following = asyncio.create_task(features.follow(), name="penstock-features")
        await features.ready()
        if not features.is_kept:
            log.warning(
                "%s: URLs cannot keep the last message of a topic: features that are changed here "
                "hold for this gateway, until it stops, and for who listens to the topic",
                self._client.capabilities.scheme,
            )
        return features

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Answers what is in hand, then ends."""
        if self._server is not None:
            await self._server.close()
            self._server = None
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
            self._following = None
        if self._own_client:
            await self._client.close()


async def prepare(client: Client, dataset: Dataset, reader: str) -> None:
    """Creates the topic and the reader of a dataset when they are missing.

    The reader exists before the first reading is published, so that nothing is ever unheld. One
    that exists is left alone: opening it would fence the pipeline that uses it.
    """
    await ensure_topic(client, dataset.topic, replay_s=REPLAY_S, retain_s=REPLAY_S)
    if not client.capabilities.has_readers:
        return
    known = {each["subscription"] for each in await client.subscriptions(dataset.topic)}
    if reader not in known:
        await client.create_subscription(dataset.topic, reader, kind=Kind.READER)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
