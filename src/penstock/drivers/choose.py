"""Which driver a URL means, by its scheme."""

from asyncio import get_running_loop
from importlib import import_module
from typing import Final

from penstock.drivers.foreign.address import Address, check_tls, parse
from penstock.drivers.port import Driver
from penstock.drivers.spelling import hint_of
from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import InvalidArgument

EMBEDDED: Final = ("file", "memory")
REMOTE: Final = "penstock"
FOREIGN: Final = {
    "kafka": "penstock.drivers.kafka",
    "kubemq": "penstock.drivers.kubemq",
    "mqtt": "penstock.drivers.mqtt",
    "tcp": "penstock.drivers.mqtt",
    "nats": "penstock.drivers.nats",
    "pubsub": "penstock.drivers.pubsub",
    "redis": "penstock.drivers.redis",
    "rediss": "penstock.drivers.redis",
}
"""Scheme → the package that carries it. Its `PORT` and `OPTIONS` tell what a URL may say; the SDK
is imported by its module `carrier` only, whose `connect(address)` opens a connection."""


def check_url(url: str) -> str:
    """Returns the scheme of a URL that can be opened. Raises InvalidArgument."""
    if not isinstance(url, str) or not url:
        raise InvalidArgument(f"a URL must be text such as 'file:./data', not {url!r}")
    scheme, _, rest = url.partition(":")
    if scheme in FOREIGN:
        address_of(url)
        return scheme
    if scheme == REMOTE:
        from penstock.drivers.remote.address import parse  # noqa: PLC0415

        parse(url)
        return scheme
    if scheme not in EMBEDDED:
        known = (REMOTE, *EMBEDDED, *FOREIGN)
        raise InvalidArgument(hint_of(without_credentials(url), known))
    if "?" in rest:
        raise InvalidArgument(
            f"{without_credentials(url)!r} has options after '?', but {scheme}: URLs take none"
        )
    return scheme


def address_of(url: str) -> Address:
    """The parts of a foreign broker's URL. Raises InvalidArgument."""
    package = import_module(FOREIGN[url.partition(":")[0]])
    return parse(url, package.PORT, package.OPTIONS)


async def open_driver(url: str) -> Driver:
    """A connection of the running loop to the broker the URL names.

    Raises InvalidArgument, Unsupported, what reaching a broker raises: Unavailable, AccessRefused;
    and what opening a store raises: NotAStore, StoreInUse, StoreTooNew, StoreDamaged.
    """
    scheme = check_url(url)
    # The imports wait until they are needed: a remote client has no use for a broker.
    if scheme in FOREIGN:
        return await _open_foreign(scheme, url)
    if scheme == REMOTE:
        from penstock.drivers.remote import open_remote  # noqa: PLC0415

        return await open_remote(url, get_running_loop())
    from penstock.drivers.embedded import open_embedded  # noqa: PLC0415

    return await open_embedded(url, get_running_loop())


async def _open_foreign(scheme: str, url: str) -> Driver:
    from penstock.drivers.foreign.driver import open_foreign  # noqa: PLC0415 - as above

    address = address_of(url)
    check_tls(address)
    connect = import_module(f"{FOREIGN[scheme]}.carrier").connect
    return await open_foreign(connect, address)
