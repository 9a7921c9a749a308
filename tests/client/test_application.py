"""Applications with a capability file, on every kind of URL."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server, free_port
from penstock.client import application as applications
from penstock.client.application import Application
from penstock.client.capability_file import parse_capabilities
from penstock.client.events import Event
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidConfiguration,
    Unavailable,
    Unsupported,
    UsageError,
)
from tests.contracts.suites.world import unique
from tests.drivers.remote.rig import Served

WAIT_S = 30.0
CONFIG = """
[[capability.config]]
url = "{url}"
qos = {qos}
{kind} = "{filter}"
delivery = "{delivery}"
"""
URLS = ["file", "mqtt", "mqtt-3.1.1", "nats", "penstock", "redis"]


def text_of(*configs: dict[str, Any], url: str = "memory:") -> str:
    text = 'specversion = "0.2"\n[[capability]]\nname = "pubsub.penstock"\n'
    for config in configs:
        given = {"url": url, "qos": 1, "kind": "queue", "delivery": "pull", **config}
        text += CONFIG.format(**given)
        if "handler" in config:
            text += f'on_message = "{config["handler"]}"\n'
    return text


def application(url: str, *configs: dict[str, Any], name: str = "app") -> Application:
    return Application(parse_capabilities(text_of(*configs), "c.toml", url), name)


@pytest.fixture(params=URLS)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, mosquitto: Server, nats_server: Server,
    redis_server: Callable[..., Server],
) -> Iterator[str]:  # fmt: skip
    kind = request.param
    if kind == "penstock":
        with Served() as served:
            yield served.url
        return
    yield {
        "file": f"file:{tmp_path / 'store'}",
        "mqtt": f"tcp://{mosquitto.address}",
        "mqtt-3.1.1": f"mqtt://{mosquitto.address}?version=3.1.1",
        "nats": f"nats://{nats_server.address}",
        "redis": f"redis://{redis_server().address}",
    }[kind]


def test_pull_and_push_on_every_url(url: str) -> None:
    queue, topic = unique("users"), unique("group")
    app = application(
        url,
        {"filter": queue},
        {"filter": topic, "kind": "topic", "delivery": "push", "handler": "on_message"},
        name=unique("app"),
    )
    app.prepare()
    sent = [Event(f"{queue}-{number}", "me", "test", {"n": number}) for number in range(3)]
    for event in sent:
        app.publish(queue, event)
        app.publish(topic, event)
    assert [app.receive(queue, WAIT_S) for _ in sent] == sent
    assert app.receive(queue, 0.05) is None
    got: list[Event] = []

    def on_message(msg: Event) -> None:
        got.append(msg)
        if len(got) == len(sent):
            client.stop()

    client = app.serving({"on_message": on_message})
    asyncio.run(asyncio.wait_for(client.run(), WAIT_S))
    assert sorted(got, key=lambda event: event.id) == sent
    app.close()
    with penstock.connect_blocking(url) as other:
        rows = other.subscriptions(queue)
        assert [row["subscription"] for row in rows] == [app.name]
        options: dict[str, Any] = {}
        if not other.capabilities.has_dead_letters:
            options["retry"] = penstock.Retry(max_attempts=None)
        with other.subscribe(queue, app.name, **options) as deliveries:
            assert deliveries.receive(timeout_s=0.2) is None, "everything is acked"


def test_an_event_in_hand_comes_again_when_the_program_fails(tmp_path: Path) -> None:
    url = f"file:{tmp_path}"
    for is_clean, expected in ((False, "0"), (True, "0"), (True, "1")):
        app = application(url, {"filter": "q"})
        app.prepare()
        if not is_clean:
            for number in range(2):
                app.publish("q", Event(data=str(number)))
        event = app.receive("q", WAIT_S)
        assert event is not None
        assert event.data == expected
        app.close(is_clean=is_clean)


def test_a_queue_is_shared_and_a_topic_goes_to_every_process() -> None:
    configs = [{"filter": "q/+"}, {"filter": "t/#", "kind": "topic"}]
    one, two = (application("memory:shared", *configs) for _ in range(2))
    for app in (one, two):
        app.prepare()
    one.publish("q/1", Event(data="once"))
    one.publish("t/1", Event(data="each"))
    assert one.receive("q/+", WAIT_S) is not None
    assert two.receive("q/+", 0.1) is None
    for app in (one, two):
        event = app.receive("t/#", WAIT_S)
        assert event is not None
        assert event.data == "each"
    one.close()
    two.close()


def test_a_topic_inside_a_pattern_may_be_pulled(url: str) -> None:
    """Of the subscription over the pattern: what the other topics have waits for its turn."""
    base = unique("user")
    app = application(url, {"filter": f"{base}/+"}, name=unique("app"))
    if not app.client().capabilities.has_patterns:
        with pytest.raises(Unsupported, match=r"key 'queue': a pattern of topics is not available"):
            app.prepare()
        app.close()
        return
    app.prepare()
    for name in ("8", "7", "8", "9"):
        app.publish(f"{base}/{name}", Event(data=name))
    for wanted, expected in (("7", "7"), ("8", "8"), ("8", "8"), ("+", "9")):
        event = app.receive(f"{base}/{wanted}", WAIT_S)
        assert event is not None
        assert event.data == expected
    assert app.receive(f"{base}/7", 0) is None
    app.publish(f"{base}/7", Event(data="later"))
    event = app.receive(f"{base}/7", WAIT_S)
    assert event is not None
    assert event.data == "later"
    with pytest.raises(InvalidConfiguration, match=r"c.toml: no .* covers topic 'else': it has"):
        app.receive("else", 0)
    app.close()


@pytest.mark.parametrize(
    ("handlers", "said"),
    [
        ({}, r"key 'on_message': no handler 'on_message' is registered.*registered: none"),
        ({"on_mesage": print}, "did you mean 'on_mesage'"),
        ({"on_message": lambda: None}, "key 'on_message': handler .* must take the message"),
    ],
)
def test_a_handler_that_is_not_there_or_cannot_be_called(
    handlers: dict[str, Any], said: str
) -> None:
    app = application("memory:", {"filter": "q", "delivery": "push", "handler": "on_message"})
    with pytest.raises((InvalidConfiguration, InvalidArgument), match=said) as raised:
        app.serving(handlers)
    assert "c.toml: [[capability]] 1 'pubsub.penstock', [[capability.config]] 1" in str(
        raised.value
    )
    app.close()


def test_handlers_may_ask_for_other_things_than_events() -> None:
    got: list[Any] = []
    configs = [
        {"filter": name, "delivery": "push", "handler": name} for name in ("a", "b", "c", "d")
    ]
    app = application("memory:kinds", *configs)
    app.prepare()
    for name in ("a", "b", "c", "d"):
        app.publish(name, Event("", "s", "t", {"n": 1}))

    def done(value: Any) -> None:
        got.append(value)
        if len(got) == len(configs):
            client.stop()

    async def a(msg: Event) -> None:
        done(msg.data)

    def b(msg):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as in a script
        done(msg.data)

    def c(body: dict[str, int]) -> None:
        done(body)

    def d(message: ReceivedMessage) -> None:
        done(message.json())

    client = app.serving({"a": a, "b": b, "c": c, "d": d})
    asyncio.run(asyncio.wait_for(client.run(), WAIT_S))
    assert got == [{"n": 1}] * 4
    app.close()


def test_an_unreachable_broker_is_named_with_its_table() -> None:
    url = f"nats://me:hidden@127.0.0.1:{free_port()}?connect_s=0.2"
    app = application(url, {"filter": "q"})
    with pytest.raises(
        Unavailable, match=r"c.toml: .*config\]\] 1, key 'url': .*reached"
    ) as raised:
        app.prepare()
    assert "hidden" not in str(raised.value)


def test_what_the_broker_cannot_do_is_named_with_its_table(nats_server: Server) -> None:
    app = application(f"nats://{nats_server.address}", {"filter": "q", "qos": 2})
    with pytest.raises(Unsupported, match=r"config\]\] 1, key 'queue': qos 2 is not available"):
        app.prepare()
    app.close()


def test_qos_goes_with_the_url_of_mqtt() -> None:
    for url, made in (
        ("tcp://h", "tcp://h?qos=2"),
        ("mqtt://h?version=5", "mqtt://h?version=5&qos=2"),
        ("mqtt://h?qos=0", "mqtt://h?qos=0"),
        ("nats://h", "nats://h"),
    ):
        app = application(url, {"filter": "a", "qos": 0}, {"filter": "b", "qos": 2})
        assert app._url == made


# -- the functions of the package ------------------------------------------------------------------


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file is in use."""
    monkeypatch.setattr(applications, "_current", None)
    monkeypatch.setattr(applications, "_handlers", {})
    monkeypatch.delenv(applications.VARIABLE, raising=False)
    yield
    applications._at_exit()


@pytest.mark.usefixtures("nobody")
def test_the_functions_use_the_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="no capability file is in use"):
        penstock.publish("q", Event())
    path = tmp_path / "c.toml"
    path.write_text(text_of({"filter": "q"}), encoding="utf-8")
    monkeypatch.setenv(applications.VARIABLE, str(path))
    monkeypatch.setattr("sys.argv", ["./my app.py"])
    penstock.publish("q", Event("i", data="1"))
    penstock.publish("q", Event("j", data="2"))
    found = penstock.receive("q", timeout_s=WAIT_S)
    assert found == Event("i", "", "", "1")
    assert next(penstock.stream("q")) == Event("j", "", "", "2")
    assert applications._current is not None
    assert applications._current.name == "my-app"
    again = penstock.use_capabilities(path, name="other")
    assert applications._current is again


@pytest.mark.usefixtures("nobody")
def test_handlers_are_registered_by_their_names() -> None:
    @penstock.register_message
    def on_message(msg: Event) -> None:
        """Does nothing."""

    assert applications.registered() == {"on_message": on_message}
