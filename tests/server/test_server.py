"""A whole server: every protocol at once, ready only after recovery, stopped in good order."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import penstock
from penstock.broker.broker import Broker
from penstock.drivers.embedded import open_folder
from penstock.server.frames import FramesListener
from penstock.server.frames_limits import FramesLimits
from penstock.server.http import HttpListener, HttpSettings
from penstock.server.lines import LinesListener
from penstock.server.lines_settings import LinesSettings
from penstock.server.server import Places, Server
from penstock.server.settings import ServeSettings, Settings
from penstock.vocabulary.errors import Draining, StoreInUse, UnknownTopic
from penstock.vocabulary.message import Message
from tests.server.serving import Served, any_places


def get(address: str, path: str) -> tuple[int, Any]:
    return ask(address, "GET", path)


def ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://{address}{path}", body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def say(address: str, *lines: str) -> str:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall("".join(f"{line}\r\n" for line in (*lines, "quit")).encode())
        found = b""
        while data := client.recv(65536):
            found += data
    return found.decode()


def test_one_message_through_every_door(tmp_path: Path) -> None:
    with Served(tmp_path / "store") as served:
        assert set(served.addresses) == {"socket", "frames", "lines", "http"}
        assert get(served.addresses["http"], "/readyz") == (200, {"ready": True})
        say(served.addresses["lines"], 'pub orders {"id": "1"}')
        urls = (served.url, f"file:{tmp_path / 'store'}")
        for url in urls:
            with penstock.connect_blocking(url) as client:
                client.publish("orders", b"x")
                assert client.capabilities.durability == "synced"
        status, found = get(served.addresses["http"], "/v1/topics/orders")
        assert (status, found["published"]) == (200, 3)
    assert not (tmp_path / "store" / "socket").exists()
    with penstock.connect_blocking(f"file:{tmp_path / 'store'}") as client:
        assert client.stats()["recovery"]["is_clean"]
        assert client.describe_topic("orders")["published"] == 3


def test_http_says_not_ready_while_the_store_recovers(tmp_path: Path) -> None:
    async def scenario() -> None:
        may_go_on, places = Event(), any_places()
        assert places.http is not None
        address = f"{places.http.host}:{places.http.port}"
        server = Server(Settings(), places)

        begun = Event()

        def slowly() -> Broker:
            begun.set()
            assert may_go_on.wait(60)
            return open_folder(tmp_path / "store")

        opening = asyncio.create_task(server.open(slowly))
        assert await asyncio.to_thread(begun.wait, 60)
        status, problem = await asyncio.to_thread(get, address, "/readyz")
        assert (status, problem["code"]) == (503, "not-ready")
        assert "recovered" in problem["detail"]
        status, health = await asyncio.to_thread(get, address, "/healthz")
        assert (status, health["status"]) == (200, "starting")
        seen = [server.is_ready]
        may_go_on.set()
        await opening
        await server.start()
        seen.append(server.is_ready)
        assert (await asyncio.to_thread(get, address, "/readyz"))[0] == 200
        await server.drain()
        seen.append(server.is_ready)
        await server.stop()
        await server.stop()
        assert seen == [False, True, False]

    asyncio.run(scenario())


def test_a_store_that_cannot_be_opened_leaves_nothing_listening(tmp_path: Path) -> None:
    async def scenario() -> None:
        places = any_places()
        server = Server(Settings(), places)

        def refuse() -> Broker:
            raise StoreInUse("it is open elsewhere")

        with pytest.raises(StoreInUse):
            await server.open(refuse)
        await server.drain()
        await server.stop()
        assert places.http is not None
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((places.http.host, places.http.port), timeout=5)

    asyncio.run(scenario())


def test_a_port_that_is_lost_at_the_last_moment_ends_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        places = any_places()
        server = Server(Settings(), places._replace(http=None))
        await server.open(lambda: open_folder(tmp_path / "store"))
        assert places.lines is not None
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind((places.lines.host, places.lines.port))
            thief.listen()
            with pytest.raises(OSError, match="ddress"):
                await server.start()
        await server.stop()
        places.give_up()

    asyncio.run(scenario())


def test_a_drain_waits_for_what_is_out_and_hands_out_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = Settings(serve=ServeSettings(drain_s=60))
        server = Server(settings, any_places())
        broker = await server.open(lambda: open_folder(tmp_path / "store"))
        await server.start()
        async with penstock.connect(f"penstock://{server.addresses['frames']}") as client:
            await client.publish_many("orders", [b"x"] * 10)
            async with client.subscribe("orders", "billing", credit=3) as deliveries:
                message = await deliveries.receive(timeout_s=30)
                assert message is not None
                while server.leased() < 3:  # noqa: ASYNC110 - another thread hands out
                    await asyncio.sleep(0.01)
                draining = asyncio.create_task(server.drain())
                await asyncio.sleep(0.1)
                assert not draining.done()
                with pytest.raises(Draining):
                    broker._check_publish()
                message.ack()
                for _ in range(2):
                    other = await deliveries.receive(timeout_s=30)
                    assert other is not None
                    other.ack()
                await asyncio.wait_for(draining, 60)
                assert server.leased() == 0
                await server.stop()
        with penstock.connect_blocking(f"file:{tmp_path / 'store'}") as after:
            (row,) = after.subscriptions("orders")
            assert (row["acked"], row["waiting"]) == (3, 7)

    asyncio.run(scenario())


def test_a_drain_ends_when_an_http_consumer_has_acked(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server(Settings(serve=ServeSettings(drain_s=60)), any_places())
        await server.open(lambda: open_folder(tmp_path / "store"))
        await server.start()
        place = "/v1/topics/t/subscriptions/s"
        address = server.addresses["http"]

        async def asked(method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
            return await asyncio.to_thread(ask, address, method, path, body)

        await asked("PUT", place)
        await asked("POST", "/v1/topics/t/messages", b"x")
        _, pulled = await asked("POST", f"{place}/pull?wait_s=10")
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0.05)
        assert (await asked("GET", "/readyz"))[0] == 503
        assert not draining.done()
        tokens = json.dumps({"tokens": [pulled["messages"][0]["token"]]}).encode()
        assert await asked("POST", f"{place}/ack", tokens) == (200, {"acked": 1})
        await asyncio.wait_for(draining, 30)
        await server.stop()

    asyncio.run(scenario())


def test_a_drain_does_not_wait_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="penstock")
    with Served(tmp_path / "store") as served:
        client = penstock.connect_blocking(served.url).open()
        client.publish("orders", b"x")
        deliveries = client.subscribe("orders", "billing")
        deliveries.__enter__()
        assert deliveries.receive(timeout_s=30) is not None
    assert "1 message is still out after 0.2 s; delivered again unless" in caplog.text
    closing = Thread(target=client.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_new_settings_reach_the_listeners(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server(Settings(), any_places())
        await server.open(lambda: open_folder(tmp_path / "store"))
        await server.start()
        fresh = Settings(
            serve=ServeSettings(port=1, drain_s=1.0),
            frames=FramesLimits(connections_max=7),
            lines=LinesSettings(commands={"publish": ["say"]}),
            http=HttpSettings(connections_max=8),
        )
        changed, fixed = server.change(fresh)
        assert fixed == ["serve.port"]
        assert changed == [
            "serve.drain_s", "frames.connections_max", "lines.commands", "http.connections_max",
        ]  # fmt: skip
        assert server.change(fresh) == ([], [])
        for listener in server.listeners:
            if isinstance(listener, FramesListener):
                assert listener.limits.connections_max == 7
            elif isinstance(listener, HttpListener):
                assert listener.settings.connections_max == 8
            else:
                assert isinstance(listener, LinesListener)
        answer = await asyncio.to_thread(say, server.addresses["lines"], 'say orders {"id": "1"}')
        assert "ok" in answer
        await server.drain()
        await server.stop()

    asyncio.run(scenario())


def test_each_door_may_be_shut(tmp_path: Path) -> None:
    async def scenario() -> None:
        places = any_places()
        for kept in ("frames", "lines", "http"):
            only = Places(**{kept: getattr(places, kept)})
            server = Server(Settings(), only)
            await server.open(lambda: open_folder(tmp_path / "store"))
            await server.start()
            assert list(server.addresses) == [kept]
            await server.drain()
            await server.stop()
        places.give_up()

    asyncio.run(scenario())


def test_a_server_may_leave_the_creation_of_topics_to_people(tmp_path: Path) -> None:
    serve = ServeSettings(drain_s=0.2, reattach_s=0.2, auto_create_topics=False)

    async def scenario(url: str) -> None:
        async with penstock.connect(url) as client:
            with pytest.raises(UnknownTopic, match="penstock topics create orders"):
                await client.publish("orders", b"x")
            with pytest.raises(UnknownTopic):
                async with client.subscribe("orders", "billing"):
                    pass
            with pytest.raises(UnknownTopic):
                async with client.transaction() as unit:
                    unit.publish("orders", b"x")
            await client.create_topic("orders", partitions=3)
            receipts = await client.publish_many(
                "orders", [Message(body=b"x", key=f"k{n}") for n in range(9)]
            )
            assert len({receipt.partition for receipt in receipts}) > 1

    with Served(tmp_path / "store", Settings(serve=serve)) as served:
        asyncio.run(scenario(served.url))


def test_auto_creation_of_topics_is_changed_by_a_reload(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server(Settings(), Places())
        broker = await server.open(lambda: open_folder(tmp_path / "store"))
        fresh = Settings(serve=ServeSettings(auto_create_topics=False))
        found = [broker.auto_create_topics]
        assert server.change(fresh) == (["serve.auto_create_topics"], [])
        assert [*found, broker.auto_create_topics] == [True, False]
        await server.stop()

    asyncio.run(scenario())
