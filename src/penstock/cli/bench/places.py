"""Where the work of a comparison is done: a broker in this process, a server, or one started here.

`serve:` starts a Penstock server, `nats:` and `redis:` start those of the cache, `nats:always` and
`redis:always` the same with a sync before each confirmation. Everything else is used as it is.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench import servers
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.side import OTHERS, SCHEMES, scheme_of
from penstock.cli.parser import BadUsage, suggestion
from penstock.vocabulary.credentials import without_credentials

SERVE: Final = "serve:"
STARTED: Final = (SERVE, "nats:", "nats:always", "redis:", "redis:always")
"""What is started here."""
NATS_SYNC: Final = {
    "": "file, synced every 2 minutes (its default)",
    "always": "file, synced before each confirmation",
}


class Place(msgspec.Struct, frozen=True):
    """One broker, ready for work."""

    name: str
    """As the person named it."""
    plan: Plan
    server: Any = None
    """The process, when it was started here."""
    durability: str = ""
    """How it was started, where its client cannot see that."""


class OurServer(servers.Server):
    """A Penstock server, with a port for each protocol."""

    def __init__(self, folder: Path, words: tuple[str, ...] = ()) -> None:
        self.line_port = servers.free_port()
        self.http_port = servers.free_port()
        port = servers.free_port()
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(folder / "store")]
        command += ["--port", str(port), "--line-port", str(self.line_port)]
        command += ["--http-port", str(self.http_port), *words]
        super().__init__(command, port, folder, ready_line="ready: ")

    @property
    def url(self) -> str:
        """For a Penstock client."""
        return f"penstock://{self.address}"


def check(url: str) -> None:
    """Raises BadUsage when nothing here can measure this URL."""
    scheme = scheme_of(url)
    if url in STARTED or ("://" in url and scheme in SCHEMES) or scheme in {"file", "memory"}:
        return
    if scheme in {"nats", "redis", "serve"}:
        raise BadUsage(
            f"{without_credentials(url)}: a server is started here by one of {', '.join(STARTED)}"
        )
    raise BadUsage(
        f"{without_credentials(url)}: bench measures {', '.join(SCHEMES)}; "
        f"{suggestion(scheme, SCHEMES)}"
    )


def check_reached(place: Place) -> None:
    """Raises Unavailable, AccessRefused when a foreign server that runs elsewhere is not there.

    Its side of a measurement uses the SDK alone, whose errors say neither.
    """
    url = place.plan.server
    if place.server is None and scheme_of(url) in OTHERS:
        asyncio.run(_reach(url))


async def _reach(url: str) -> None:
    from penstock.drivers import open_driver

    await (await open_driver(url)).close()


@contextmanager
def opened(url: str, folder: Path, plan: Plan) -> Iterator[Place]:
    """A place for work; what was started is stopped at the end. The folder is for its data."""
    folder.mkdir(parents=True, exist_ok=True)
    scheme, _, setting = url.partition(":")
    if url not in STARTED:
        server = f"file:{folder / 'store'}" if scheme == "file" else url
        if scheme == "memory":
            server = "memory:bench"
        yield Place(without_credentials(url), _with(plan, folder, server))
        return
    if url == SERVE:
        with servers.running(lambda _port: OurServer(folder)) as process:
            yield Place(url, _with(plan, folder, f"penstock://{process.address}"), process)
        return
    make = (
        servers.nats(folder, sync=setting or "default")
        if scheme == "nats"
        else servers.redis(folder, fsync=setting or "everysec")
    )
    with servers.running(make) as process:
        durability = NATS_SYNC[setting] if scheme == "nats" else ""
        asked = _with(plan, folder, f"{scheme}://{process.address}")
        yield Place(url, asked, process, durability)


def _with(plan: Plan, folder: Path, server: str) -> Plan:
    return msgspec.structs.replace(plan, folder=str(folder), server=server)
