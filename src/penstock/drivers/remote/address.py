"""Where a broker is: a host and a port, or a Unix socket."""

import math
from asyncio import AbstractEventLoop, BaseProtocol, BaseTransport
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.frames import PORT

CONNECT_S_DEFAULT: Final = 5.0
"""How long the first connection is tried for."""
OPTIONS: Final = ("connect_timeout_s",)


class Address(Protocol):
    """Something to connect to."""

    @property
    def text(self) -> str:
        """How people name it."""
        ...

    async def open(
        self, loop: AbstractEventLoop, factory: Callable[[], BaseProtocol]
    ) -> tuple[BaseTransport, Any]:
        """Connects. Raises OSError."""
        ...


class TcpAddress(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """How people name it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def open(
        self, loop: AbstractEventLoop, factory: Callable[[], BaseProtocol]
    ) -> tuple[BaseTransport, Any]:
        """Connects. Raises OSError."""
        return await loop.create_connection(factory, self.host, self.port)


class UnixAddress(NamedTuple):
    """A socket in the file system."""

    path: str

    @property
    def text(self) -> str:
        """How people name it."""
        return self.path

    async def open(
        self, loop: AbstractEventLoop, factory: Callable[[], BaseProtocol]
    ) -> tuple[BaseTransport, Any]:
        """Connects. Raises OSError."""
        return await loop.create_unix_connection(factory, self.path)


def parse(url: str) -> tuple[TcpAddress, float]:
    """The address of a `penstock:` URL, and how long to try. Raises InvalidArgument."""
    shown = without_credentials(url)
    if shown != url:
        raise InvalidArgument(f"{shown!r} has an '@', and penstock: URLs have no user: write "
                              "'penstock://HOST:8001'")  # fmt: skip
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument(f"{url!r} is not a URL: {error}") from error
    if parts.scheme != "penstock" or not url.startswith("penstock://") or not host:
        raise InvalidArgument(f"{url!r} names no host; write for example 'penstock://localhost'")
    if parts.fragment:
        raise InvalidArgument(f"{url!r} has a fragment, which means nothing here")
    if parts.path not in {"", "/"}:
        raise InvalidArgument(
            f"{url!r} has a path; a client connects to a server, and names topics in its calls"
        )
    timeout_s = CONNECT_S_DEFAULT
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            raise InvalidArgument(f"{url!r} has the option {name!r}; known: {', '.join(OPTIONS)}")
        timeout_s = _seconds(url, name, value)
    return TcpAddress(host, PORT if port is None else port), timeout_s


def _seconds(url: str, name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidArgument(f"{name} in {url!r} must be seconds from 0 on, not {value!r}")
    return seconds
