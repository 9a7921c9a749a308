"""How safe a confirmed message is, is asked of each server that answers."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

import penstock
from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.vocabulary.errors import Unavailable, Unsupported
from penstock.vocabulary.message import Durability
from tests.servers.fixtures import starting


def test_a_server_that_came_back_with_another_configuration_is_asked_again(tmp_path: Path) -> None:
    program = servers.program_of("redis", "redis-server")

    async def scenario(first: Server) -> None:
        words = [str(program), "--bind", "127.0.0.1", "--port", str(first.port), "--save", ""]
        second = Server(
            [*words, "--dir", str(tmp_path / "second")], first.port, tmp_path / "second"
        )
        async with penstock.connect(f"redis://{first.address}") as client:
            assert (await client.publish("t", b"1", durability="synced")).durability == "synced"
            async with client.transaction() as unit:
                unit.publish("t", b"2")
            first.stop()
            second.start()
            try:
                with suppress(Unavailable):  # the connection was broken
                    await client.topics()
                with pytest.raises(Unsupported, match="they confirm at 'memory'"):
                    await client.publish("t", b"3", durability="synced")
                receipt = await client.publish("t", b"4")
                assert receipt.durability is Durability.MEMORY
                assert client.capabilities.durability is Durability.MEMORY
                async with client.transaction() as unit:
                    unit.publish("t", b"5")
                assert [each.durability for each in unit.receipts] == [Durability.MEMORY]
            finally:
                second.stop()
            first.start()
            assert (await client.publish("t", b"6")).durability is Durability.SYNCED

    with starting(lambda: servers.redis(tmp_path / "first", fsync="always")) as server:
        asyncio.run(scenario(server))
