"""What holds for every test: no network, and property tests that do not depend on speed."""

import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import longest
from tests.tally import Tally

pytest_plugins = ["tests.servers.fixtures"]

# One process tries gRPC and later starts Java: a fork while gRPC's threads run may end the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

settings.register_profile("core", deadline=None, max_examples=100)
settings.register_profile("prove", deadline=None, max_examples=5_000)
settings.load_profile("core")


TALLY = pytest.StashKey[Tally]()
TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, the others as they come."""
    ranks = {TESTS / name: rank for rank, name in enumerate(longest.FILES)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    """Where a proof adds its numbers; they are printed at the end of the run."""
    return pytestconfig.stash[TALLY]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tally"] = session.config.stash[TALLY].dump()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A test process of pytest-xdist ends: its numbers join the others."""
    node.config.stash[TALLY].load(getattr(node, "workeroutput", {}).get("tally", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash[TALLY].lines():
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """The command line and the import linter change the library's log for their whole process."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("penstock"):
            logging.getLogger(name).disabled = False
    log = logging.getLogger("penstock")
    level, handlers = log.level, list(log.handlers)
    yield
    log.setLevel(level)
    log.handlers[:] = handlers


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """Connections to other machines and name look-ups fail; loopback and Unix sockets work."""
    connect = socket.socket.connect
    look_up = socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and not _is_loopback(address[0]):
            pytest.fail(f"a test tried to connect to {address!r}")
        connect(self, address)

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host is not None and not _is_loopback(host):
            pytest.fail(f"a test tried to look up {host!r}")
        return look_up(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket, "getaddrinfo", guarded_look_up)
        yield


def _is_loopback(host: str | bytes) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
