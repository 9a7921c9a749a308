"""NATS JetStream through nats-py, tuned as its users would.

A push consumer with a callback is the fastest way to consume with this client: it took three times
as many messages a second as the best size of `fetch`.
"""

import asyncio
from collections.abc import Sequence
from importlib import metadata
from uuid import uuid4

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from penstock.cli.bench.plan import Plan
from penstock.cli.bench.side import Tally

PENDING = 100_000
"""Messages that may be delivered and not acked; the server's default of 1,000 slows it down."""
WAITING, WAITING_BYTES = 1_000_000, 1 << 30
"""What may wait inside the client; it drops what is more."""
PATIENCE_S = 60.0


class NatsSide:
    """One connection that publishes, one that consumes."""

    in_flight = 20

    def __init__(self, plan: Plan) -> None:
        self._url = plan.url
        self._name = f"bench-{uuid4().hex[:8]}"

    async def open(self) -> None:
        """Two connections and a stream on disk."""
        self._out = await nats.connect(self._url, pending_size=64 << 20)
        self._in = await nats.connect(self._url, pending_size=64 << 20)
        self._publishing = self._out.jetstream(timeout=PATIENCE_S, publish_async_max_pending=8_000)
        self._consuming = self._in.jetstream(timeout=PATIENCE_S)
        await self._publishing.add_stream(
            name=self._name, subjects=[self._name], storage=StorageType.FILE
        )

    async def close(self) -> None:
        """Deletes the stream."""
        await self._publishing.delete_stream(self._name)
        await self._in.close()
        await self._out.close()

    async def publish(self, body: bytes) -> None:
        """One publish, and its confirmation."""
        await self._publishing.publish(self._name, body)

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        """All of them at once, then all their confirmations."""
        futures = [await self._publishing.publish_async(self._name, body) for body in bodies]
        await asyncio.gather(*futures)

    async def consume(self, tally: Tally) -> None:
        """Takes what the server pushes; each message is acked by itself."""
        finished = asyncio.Event()

        async def take(message: Msg) -> None:
            await message.ack()
            tally.taken += 1
            if tally.arrived is not None:
                tally.arrived(message.data)
            if tally.taken >= tally.wanted:
                finished.set()

        subscription = await self._consuming.subscribe(
            self._name,
            durable="reader",
            cb=take,
            manual_ack=True,
            config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=PENDING),
            pending_msgs_limit=WAITING,
            pending_bytes_limit=WAITING_BYTES,
        )
        await finished.wait()
        await self._in.flush()
        await subscription.unsubscribe()

    async def about(self) -> dict[str, str]:
        """Versions; how often it syncs is a setting that a client cannot see."""
        return {
            "server": f"nats-server {_version(self._out)}",
            "client": f"nats-py {metadata.version('nats-py')}",
            "durability": "file, synced as the server is set",
        }


def _version(client: nats.NATS) -> str:
    version = client.connected_server_version
    return f"{version.major}.{version.minor}.{version.patch}"


def side(plan: Plan) -> NatsSide:
    """The NATS side of a comparison."""
    return NatsSide(plan)
