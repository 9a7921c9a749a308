"""Which driver a URL means, by its scheme."""

from asyncio import get_running_loop
from difflib import get_close_matches
from typing import Final

from penstock.drivers.port import Driver
from penstock.vocabulary.errors import InvalidArgument, Unsupported

EMBEDDED: Final = ("file", "memory")
REMOTE: Final = "penstock"
LATER: Final = ("kafka", "kubemq", "mqtt", "nats", "pubsub", "redis")
"""Schemes that are known and not available in this version."""


def check_url(url: str) -> str:
    """Returns the scheme of a URL that can be opened. Raises InvalidArgument, Unsupported."""
    if not isinstance(url, str) or not url:
        raise InvalidArgument(f"a URL must be text such as 'file:./data', not {url!r}")
    scheme, mark, rest = url.partition(":")
    if not mark:
        raise InvalidArgument(
            f"{url!r} is not a URL: it has no scheme; for a folder write 'file:{url}'"
        )
    if scheme in LATER:
        raise Unsupported(
            f"{scheme}: URLs are not available in this version; use 'file:DIR' or 'memory:'"
        )
    if scheme == REMOTE:
        from penstock.drivers.remote.address import parse  # noqa: PLC0415

        parse(url)
        return scheme
    if scheme not in EMBEDDED:
        close = get_close_matches(scheme.lower(), [*EMBEDDED, REMOTE, *LATER], n=1)
        hint = f"did you mean '{close[0]}:{rest}'?" if close else "use 'file:DIR' or 'memory:'"
        raise InvalidArgument(f"unknown scheme {scheme!r} in URL {url!r}; {hint}")
    if "?" in rest:
        raise InvalidArgument(f"{url!r} has options after '?', but {scheme}: URLs take none")
    return scheme


async def open_driver(url: str) -> Driver:
    """A connection of the running loop to the broker the URL names.

    Raises InvalidArgument, Unsupported, Unavailable when there is no server, and what opening a
    store raises: NotAStore, StoreInUse, StoreTooNew, StoreDamaged.
    """
    scheme = check_url(url)
    # The imports wait until they are needed: a remote client has no use for a broker.
    if scheme == REMOTE:
        from penstock.drivers.remote import open_remote  # noqa: PLC0415

        return await open_remote(url, get_running_loop())
    from penstock.drivers.embedded import open_embedded  # noqa: PLC0415

    return await open_embedded(url, get_running_loop())
