"""The connection: requests, losses, errors in our words."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats import errors as problems

from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.drivers.foreign.address import parse
from penstock.drivers.nats import connection as connection_module
from penstock.drivers.nats.connection import Ack, Connection, Incoming, Row, _Failure, check_version
from penstock.vocabulary.errors import (
    AccessRefused,
    DeadLetterFull,
    InvalidArgument,
    StorageError,
    Unavailable,
    UnknownTopic,
    Unsupported,
)
from tests.contracts.suites.world import PATIENCE_S, unique
from tests.servers.fixtures import starting


def connection(address: str = "h") -> Connection:
    return Connection(parse(f"nats://me:secret@{address}", 4222, {}))


def test_errors_of_the_sdk_become_ours_without_credentials() -> None:
    made = connection()
    for error, kind in (
        (problems.AuthorizationError(), AccessRefused),
        (problems.Error("nats: 'Authorization Violation'"), AccessRefused),
        (problems.MaxPayloadError(), InvalidArgument),
        (problems.NoServersError(), Unavailable),
        (OSError("refused"), Unavailable),
    ):
        found = made._translated(error)
        assert type(found) is kind
        assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("code", "number", "kind"),
    [
        (404, 10059, UnknownTopic), (400, 10077, DeadLetterFull), (503, 10039, Unsupported),
        (503, 1, Unavailable), (400, 1, StorageError),
    ],
)  # fmt: skip
def test_errors_of_jetstream_become_ours(code: int, number: int, kind: type[Exception]) -> None:
    found = connection().failure(_Failure(code=code, err_code=number, description="why"))
    assert type(found) is kind
    assert found.details["err_code"] == number


def test_a_server_that_is_too_old_is_refused_by_its_version() -> None:
    for version in ((2, 10), (2, 11), (3, 0)):
        check_version(version, "nats://h")
    for version in ((2, 9), (1, 99)):
        with pytest.raises(Unsupported, match=rf"nats-server {version[0]}\.{version[1]}; 2\.10 or"):
            check_version(version, "nats://h")


def test_status_messages_are_told_from_data() -> None:
    assert Incoming("s", "", b"", {"Status": "408"}).status == "408"
    assert Incoming("s", "", b"x", {"Status": "mine"}).status is None
    assert Incoming("s", "", b"", None).status is None


def test_messages_are_stored_in_order_and_known_ones_are_named(nats_server: Server) -> None:
    async def scenario() -> None:
        made = Connection(parse(f"nats://{nats_server.address}", 4222, {}))
        await made.open()
        subject = unique("store")
        with pytest.raises(UnknownTopic, match="no stream"):
            await made.store(subject, [(b"x", {})])
        await made.api(f"STREAM.CREATE.{subject}", name=subject, subjects=[subject])
        found = await made.store(subject, [(b"0", {"Nats-Msg-Id": "a"}), (b"1", {})])
        assert found == [Ack(1, False), Ack(2, False)]
        assert await made.store(subject, [(b"0", {"Nats-Msg-Id": "a"})]) == [Ack(1, True)]
        with pytest.raises(UnknownTopic):
            await made.api("STREAM.INFO.nothing-here")
        with pytest.raises(Unavailable, match="nobody answers"):
            await made.request("nobody.here", b"")
        await made.close()
        with pytest.raises(Unavailable):
            await made.publish(subject, b"x")

    asyncio.run(scenario())


def _is_up(made: Connection) -> bool:
    return made.is_up


def test_a_lost_connection_fails_what_waits_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server) -> None:
        made = Connection(parse(f"nats://{server.address}", 4222, {}))
        await made.open()
        waiting = asyncio.create_task(made.request("$JS.API.INFO", b""))
        await waiting
        told: list[Incoming | None] = []
        made.expect(told.append)
        server.kill()
        async with asyncio.timeout(20):
            while _is_up(made) or not told:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert told == [None]
        with pytest.raises(Unavailable):
            await made.request("$JS.API.INFO", b"")
        monkeypatch.setattr(connection_module, "REQUEST_S", 0.1)
        with pytest.raises(Unavailable, match="cannot be reached just now"):
            await made.api("INFO")
        monkeypatch.setattr(connection_module, "REQUEST_S", PATIENCE_S)
        asking = asyncio.create_task(made.api("INFO"))
        await asyncio.to_thread(server.start)
        assert "limits" in await asking
        assert made.version >= (2, 9)
        assert made.payload_max >= 1 << 20
        await made.close()

    with starting(lambda: servers.nats(tmp_path / "nats")) as server:
        asyncio.run(scenario(server))


def test_a_question_waits_while_a_server_that_comes_to_nothing_is_greeted(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        made = Connection(parse(f"nats://{server.address}", 4222, {}))
        await made.open()
        server.kill()
        greeted, is_over = asyncio.Event(), asyncio.Event()

        async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            greeted.set()
            await is_over.wait()
            writer.close()

        host, port = server.address.split(":")
        silent = await asyncio.start_server(say_nothing, host, int(port))
        async with asyncio.timeout(PATIENCE_S):
            await greeted.wait()
        asking = asyncio.create_task(made.api("INFO"))
        assert not (await asyncio.wait([asking], timeout=0.2))[0]
        silent.close()
        is_over.set()
        await silent.wait_closed()
        await asyncio.to_thread(server.start)
        assert "limits" in await asking
        await made.close()

    with starting(lambda: servers.nats(tmp_path / "nats")) as server:
        asyncio.run(scenario(server))


def test_tls_that_cannot_be_had_is_an_error_at_once() -> None:
    made = Connection(parse("nats://127.0.0.1:1?tls=true&tls_ca=nowhere.pem", 4222, {}))
    with pytest.raises((OSError, Unavailable)):
        asyncio.run(made.open())


def test_a_post_tells_what_store_would_return(nats_server: Server) -> None:
    async def scenario() -> None:
        made = Connection(parse(f"nats://{nats_server.address}", 4222, {}))
        await made.open()
        subject = unique("post")

        async def posted(*rows: Row) -> Any:
            told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            made.post(subject, rows, told.set_result)
            assert not told.done()
            return await asyncio.wait_for(told, PATIENCE_S)

        assert isinstance(await posted((b"x", {})), UnknownTopic)
        await made.api(f"STREAM.CREATE.{subject}", name=subject, subjects=[subject])
        assert await posted((b"0", {"Nats-Msg-Id": "a"}), (b"1", {})) == [
            Ack(1, False), Ack(2, False),
        ]  # fmt: skip
        assert await posted((b"0", {"Nats-Msg-Id": "a"})) == [Ack(1, True)]
        too_large = bytes(made.payload_max + 1)
        assert isinstance(await posted((b"2", {}), (too_large, {})), InvalidArgument)
        made._nats._max_pending_size = 10  # the SDK waits for room then
        assert isinstance(await posted((bytes(100), {})), Unavailable)
        await made.close()
        assert isinstance(await posted((b"x", {})), Unavailable)
        assert not made._waiting

    asyncio.run(scenario())


def test_a_post_without_an_answer_is_given_up(
    nats_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_S", 0.1)

    async def scenario() -> None:
        made = Connection(parse(f"nats://{nats_server.address}", 4222, {}))
        await made.open()
        subject = unique("silent")
        await made.subscribe(subject, lambda _: None)  # somebody who does not answer
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        made.post(subject, [(b"x", {})], told.set_result)
        assert "did not confirm in 0.1 s" in str(await asyncio.wait_for(told, PATIENCE_S))
        assert not made._waiting
        await made.close()

    asyncio.run(scenario())
