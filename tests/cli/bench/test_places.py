import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.bench import places
from penstock.cli.bench.places import OurServer
from penstock.cli.bench.plan import Plan
from penstock.cli.parser import BadUsage
from penstock.vocabulary.errors import Unavailable
from tests.servers.fixtures import available


@pytest.mark.parametrize(
    "url",
    ["file:.", "memory:", "penstock://h:1", "nats://h", "redis://h", "kafka://h", *places.STARTED],
)
def test_a_url_that_can_be_measured(url: str) -> None:
    places.check(url)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("rabbit://h", "bench measures file, memory, penstock, nats, redis"),
        ("radis://h", "did you mean 'redis'"),
        ("redis:everysec", "started here by one of serve:, nats:"),
        ("nats", "started here by one of"),
    ],
)
def test_a_url_that_cannot(url: str, problem: str) -> None:
    with pytest.raises(BadUsage, match=problem):
        places.check(url)


@pytest.mark.parametrize(
    ("url", "server"),
    [("memory:", "memory:bench"), ("penstock://h:1", "penstock://h:1"), ("redis://h", "redis://h")],
)
def test_what_runs_elsewhere_is_used_as_it_is(url: str, server: str, tmp_path: Path) -> None:
    with places.opened(url, tmp_path / "new", Plan(batch=7)) as place:
        assert place.plan == Plan(batch=7, folder=str(tmp_path / "new"), server=server)
        assert place.server is None


def test_a_store_has_a_folder_of_its_own(tmp_path: Path) -> None:
    with places.opened("file:.", tmp_path, Plan()) as place:
        assert place.plan.url == f"file:{tmp_path / 'store'}"


def test_our_server_is_started_and_stopped(tmp_path: Path) -> None:
    with places.opened(places.SERVE, tmp_path, Plan()) as place:
        server = place.server
        assert isinstance(server, OurServer)
        assert place.plan.url == server.url == f"penstock://127.0.0.1:{server.port}"
        assert server.resident_bytes() > 0
    assert "stopped in good order" in server.text_of_log()


@pytest.mark.parametrize(
    ("url", "durability"),
    [("nats:", "every 2 minutes"), ("nats:always", "before each"), ("redis:always", "")],
)
def test_others_are_started_from_the_cache(url: str, durability: str, tmp_path: Path) -> None:
    def start() -> Callable[[], None]:
        with places.opened(url, tmp_path, Plan()) as place:
            assert place.plan.url.startswith(f"{url.partition(':')[0]}://127.0.0.1:")
            assert durability in place.durability
        return lambda: None

    available(start)


def test_a_foreign_server_that_is_not_there_is_told_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"redis://u:secret@127.0.0.1:{unused.getsockname()[1]}?connect_s=0.1"
        with (
            places.opened(url, tmp_path, Plan()) as place,
            pytest.raises(Unavailable, match="could not be reached") as raised,
        ):
            places.check_reached(place)
    assert "secret" not in f"{raised.value} {place.name}"
