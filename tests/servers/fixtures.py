"""The real servers as fixtures: each starts once in a test process, on a free port, and stops.

A server that is not in the cache skips its tests; with CI or PENSTOCK_REQUIRE_SERVERS set it fails
them. Every test gives its topics names of their own (`unique`), since the server is shared. A test
that kills its server starts one for itself, with `starting(servers.nats(tmp_path / "nats"))`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from tests.servers import emulators, kafka

REQUIRED = ("CI", "PENSTOCK_REQUIRE_SERVERS")

T = TypeVar("T")
Make = Callable[[int], Server]


def unique(name: str) -> str:
    """A name no other test uses."""
    return f"{name}-{uuid4().hex[:12]}"


def is_required() -> bool:
    """Whether a missing server is a failure."""
    return any(os.environ.get(name, "") not in {"", "0", "false"} for name in REQUIRED)


def starting(make: Callable[[], Make]) -> AbstractContextManager[Server]:
    """A server for one test; what cannot be had skips the test, or fails it where it must be."""
    return servers.running(available(make))


def available(make: Callable[[], T]) -> T:
    """What `make` returns; a missing server skips the test, or fails it where it must be there."""
    try:
        return make()
    except servers.Missing as error:
        if is_required():
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """NATS with JetStream on disk, default sync."""
    with starting(lambda: servers.nats(tmp_path_factory.mktemp("nats"))) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Server]]:
    """A function: Redis with `fsync="always"` (the default here) or `"everysec"`."""
    with ExitStack() as stack:
        started: dict[str, Server] = {}

        def get(fsync: str = "always") -> Server:
            if fsync not in started:
                folder = tmp_path_factory.mktemp(f"redis-{fsync}")
                make = starting(lambda: servers.redis(folder, fsync=fsync))
                started[fsync] = stack.enter_context(make)
            return started[fsync]

        yield get


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """mosquitto, which keeps sessions and queued messages across a stop in good order."""
    folder = tmp_path_factory.mktemp("mosquitto")
    with starting(lambda: emulators.mosquitto(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def pstest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The Pub/Sub server of the Go client's own tests, in memory."""
    with starting(lambda: emulators.pstest(tmp_path_factory.mktemp("pstest"))) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Cluster]:
    """Kafka on one node."""
    with _kafka(tmp_path_factory.mktemp("kafka"), 1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Cluster]:
    """Kafka on three nodes, each broker and controller."""
    with _kafka(tmp_path_factory.mktemp("kafka-three"), 3) as cluster:
        yield cluster


@contextmanager
def _kafka(folder: Path, nodes: int) -> Iterator[kafka.Cluster]:
    cluster = available(lambda: kafka.Cluster(folder, nodes))
    try:
        yield cluster.start()
    finally:
        cluster.stop()
