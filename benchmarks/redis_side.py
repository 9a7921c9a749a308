"""Redis Streams through redis-py, tuned as its users would."""

from collections.abc import Sequence
from importlib import metadata
from uuid import uuid4

from redis.asyncio import ConnectionPool, Redis

from penstock.cli.bench.plan import Plan
from penstock.cli.bench.side import Tally

READ = 1_000
"""Messages asked for in one go."""
BLOCK_MS = 1_000
GROUP = "group"
BODY = b"b"


class RedisSide:
    """A pool of connections that publish, one that consumes."""

    in_flight = 8

    def __init__(self, plan: Plan) -> None:
        self._url = plan.url
        self._name = f"bench-{uuid4().hex[:8]}"
        self._connections = max(plan.callers, self.in_flight, plan.in_flight) + 2

    async def open(self) -> None:
        """A stream and its group."""
        pool = ConnectionPool.from_url(self._url, max_connections=self._connections)
        self._client = Redis(connection_pool=pool)
        await self._client.xgroup_create(self._name, GROUP, id="0", mkstream=True)

    async def close(self) -> None:
        """Deletes the stream."""
        await self._client.delete(self._name)
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def publish(self, body: bytes) -> None:
        """One XADD."""
        await self._client.xadd(self._name, {BODY: body})

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        """One pipeline of XADD."""
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._name, {BODY: body})
        await pipeline.execute()

    async def consume(self, tally: Tally) -> None:
        """Reads what is new, and acks every id of it with one XACK."""
        arrived = tally.arrived
        while tally.taken < tally.wanted:
            found = await self._client.xreadgroup(
                GROUP, "reader", {self._name: ">"}, count=READ, block=BLOCK_MS
            )
            for _, rows in found.items() if isinstance(found, dict) else found:
                if arrived is not None:
                    for _, fields in rows:
                        arrived(fields[BODY])
                await self._client.xack(self._name, GROUP, *(number for number, _ in rows))
                tally.taken += len(rows)

    async def about(self) -> dict[str, str]:
        """Versions, and when it syncs."""
        server = await self._client.info("server")
        settings = await self._client.config_get("append*")
        is_kept = settings["appendonly"] == "yes"
        return {
            "server": f"redis {server['redis_version']}",
            "client": f"redis-py {metadata.version('redis')}{_parser()}",
            "durability": f"appendfsync {settings['appendfsync']}"
            if is_kept
            else "none: in memory",
        }


def _parser() -> str:
    try:
        return f" with hiredis {metadata.version('hiredis')}"
    except metadata.PackageNotFoundError:
        return " without hiredis"


def side(plan: Plan) -> RedisSide:
    """The Redis side of a comparison."""
    return RedisSide(plan)
