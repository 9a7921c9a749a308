"""The addresses a server listens on: which are allowed, and whether they can be had."""

import ipaddress
import os
import socket
from contextlib import suppress
from typing import NamedTuple, Self

from penstock.vocabulary.errors import AddressInUse, InvalidConfiguration


class Place(NamedTuple):
    """An address kept for one listener: bound, so that nobody else takes it, and silent."""

    host: str
    port: int
    keeper: socket.socket

    @classmethod
    def keep(cls, host: str, port: int, what: str, option: str) -> Self:
        """Keeps a port, any free one for 0.

        Raises AddressInUse with what to do, InvalidConfiguration for a host nobody knows.
        """
        family, address = _resolved(host, port)
        keeper = socket.socket(family, socket.SOCK_STREAM)
        try:
            # A listener may then bind it once more, and listen; whoever listens already is found.
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind(address)
        except OSError as error:
            keeper.close()
            reason = os.strerror(error.errno or 0)
            raise AddressInUse(
                f"port {port} of {host} cannot be had for {what} ({reason}): stop what uses it, or "
                f"choose another with {option} PORT ({option} 0 takes any free one)"
            ) from error
        found = keeper.getsockname()
        return cls(found[0], found[1], keeper)

    def give_up(self) -> None:
        """Others may have it now. Doing so twice is harmless."""
        self.keeper.close()


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        raise InvalidConfiguration(
            f"host {host!r} is not an address of this machine ({error}): use 127.0.0.1, or another "
            "with --host"
        ) from error
    first = min(found, key=lambda each: each[0] != socket.AF_INET)
    return first[0], (str(first[4][0]), int(first[4][1]))


def check_host(host: str, *, is_insecure: bool) -> None:
    """Raises InvalidConfiguration when others could listen in, and nobody said that they may."""
    if is_loopback(host) or is_insecure:
        return
    raise InvalidConfiguration(
        f"host {host!r} can be reached from other machines, and this version speaks without TLS: "
        "whoever can reach it may read and write everything; give --insecure-listen if that is "
        "what you want, or keep 127.0.0.1"
    )


def shown_address(host: str, port: int) -> str:
    """`host:port` as URLs have it: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True for an address only this machine can reach."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
