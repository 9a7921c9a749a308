"""The connection for sends, on the real server: answers in order, losses, and time."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import redis.asyncio
from redis import exceptions as problems

from penstock.cli.bench.servers import Server
from penstock.drivers.redis.quick import Quick
from tests.contracts.suites.world import PATIENCE_S, unique, until

Redis = Callable[..., Server]


class Scene:
    def __init__(self, server: Server, answer_s: float = 10.0) -> None:
        host, port = server.address.split(":")
        self.redis = redis.asyncio.Redis(host=host, port=int(port), protocol=2)
        self.server = server
        make = redis.asyncio.Redis(
            host=host, port=int(port), protocol=2, socket_timeout=None
        ).connection_pool.make_connection
        self.quick = Quick(make, answer_s, asyncio.get_running_loop())
        self.told: list[Any] = []

    async def ready(self) -> None:
        async def sent() -> bool:
            return self.quick.send(("PING",), lambda _: None)

        await until(sent, "the connection")

    async def heard(self) -> list[Any]:
        return self.told

    async def ask(self, *command: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        assert self.quick.send(command, future.set_result)
        return await asyncio.wait_for(future, PATIENCE_S)

    async def close(self) -> None:
        await self.quick.close()
        await self.redis.aclose()


def test_answers_come_in_the_order_of_the_commands(redis_server: Redis) -> None:
    async def scenario() -> None:
        scene = Scene(redis_server("everysec"))
        assert not scene.quick.send(("PING",), scene.told.append)  # it connects first
        await scene.ready()
        key = unique("quick")
        for number in range(50):
            assert scene.quick.send(("APPEND", key, "x" * number), scene.told.append)
        assert not scene.told  # never within the call
        assert await scene.ask("GET", key) == b"x" * sum(range(50))
        assert scene.told == [sum(range(number + 1)) for number in range(50)]
        assert isinstance(await scene.ask("EVALSHA", "0" * 40, 0), problems.NoScriptError)
        assert await scene.ask("PING") == b"PONG"  # an error is an answer too
        await scene.close()
        assert not scene.quick.send(("PING",), scene.told.append)

    asyncio.run(scenario())


def test_a_lost_connection_is_told_and_made_again(redis_server: Redis) -> None:
    async def scenario() -> None:
        scene = Scene(redis_server("everysec"))
        await scene.ready()
        number = await scene.ask("CLIENT", "ID")
        scene.quick.send(("BLPOP", unique("nothing"), 0), scene.told.append)
        await scene.redis.client_kill_filter(_id=number)
        await until(scene.heard, "the answer")
        assert isinstance(scene.told[0], problems.ConnectionError | OSError)
        await scene.ready()
        assert await scene.ask("PING") == b"PONG"
        await scene.close()

    asyncio.run(scenario())


def test_a_server_that_does_not_answer_is_not_waited_for(redis_server: Redis) -> None:
    async def scenario() -> None:
        scene = Scene(redis_server("everysec"), answer_s=5)
        await scene.ready()
        assert await scene.ask("PING") == b"PONG"
        await asyncio.sleep(1)  # the timer of that one does not end the next one early
        sent = time.monotonic()
        scene.quick.send(("BLPOP", unique("nothing"), 0), scene.told.append)
        await until(scene.heard, "the answer")
        assert time.monotonic() - sent > 4.9
        assert "5 s" in str(scene.told[0])
        await scene.ready()
        await scene.close()

    asyncio.run(scenario())


def test_closing_tells_whoever_waits(redis_server: Redis) -> None:
    async def scenario() -> None:
        scene = Scene(redis_server("everysec"))
        await scene.ready()
        scene.quick.send(("BLPOP", unique("nothing"), 0), scene.told.append)
        await scene.close()
        assert isinstance(scene.told[0], problems.ConnectionError)

    asyncio.run(scenario())


def test_a_question_nobody_waits_for_any_more_harms_no_other(redis_server: Redis) -> None:
    async def scenario() -> None:
        scene = Scene(redis_server("everysec"))
        assert scene.quick.ask(("PING",)) is None  # it connects first
        await scene.ready()
        given_up, other = scene.quick.ask(("ECHO", "a")), scene.quick.ask(("ECHO", "b"))
        assert given_up is not None
        assert other is not None
        given_up.cancel()
        assert await asyncio.wait_for(other, PATIENCE_S) == b"b"
        await scene.close()
        assert scene.quick.ask(("PING",)) is None

    asyncio.run(scenario())


def test_nobody_there_is_no_error_of_its_own() -> None:
    async def scenario() -> None:
        pool = redis.asyncio.Redis(host="127.0.0.1", port=1, socket_timeout=None).connection_pool
        quick = Quick(pool.make_connection, 1.0, asyncio.get_running_loop())
        assert not quick.send(("PING",), lambda _: None)
        for _ in range(10):
            await asyncio.sleep(0.01)
            assert not quick.send(("PING",), lambda _: None)
        await quick.close()

    asyncio.run(scenario())
