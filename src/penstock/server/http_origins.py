"""Which web pages may use the server through their visitor's browser.

A browser says which site a page is of (`Origin`) and by which name it found the server (`Host`).
Whoever owns a name can point it at this machine after the page was loaded (DNS rebinding), and then
both agree. So a page is the server's own only under a name that nobody else can point anywhere: an
address, `localhost`, or one the server was given.
"""

import ipaddress
from collections.abc import Collection, Mapping
from contextlib import suppress

from penstock.wire.rest import Refused


def check(
    headers: Mapping[str, str], allowed: Collection[str], own: Collection[str], *, is_local: bool
) -> str:
    """The other site whose page asks and may, or nothing. Raises Refused.

    `allowed`: the origins of the settings; `own`: names the server was given; `is_local`: it
    listens for this machine alone, where no client needs a public name.
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    if "*" in allowed:
        return origin or ""
    name = host_name(host)
    is_own = _is_address(name) or _is_local_name(name) or name in own
    if origin is None:
        # A browser asks without an origin when it reads from what it takes for the page's own site.
        is_known = is_own or name in {host_name(each.partition("://")[2]) for each in allowed}
        if is_local and "." in name and not is_known:
            raise Refused(
                403,
                "origin-not-allowed",
                f"this server is not known as {name[:200]!r}: ask it by its address, or allow "
                "http://… with this name by its setting origins",
            )
        return ""
    if origin in allowed:
        return origin
    if is_own and origin.partition("://")[2].lower() == host.lower():
        return ""
    raise Refused(
        403,
        "origin-not-allowed",
        f"pages of {origin[:200]!r} may not use this server; allow them by its setting origins",
    )


def host_name(host: str) -> str:
    """The name without its port: `localhost` of `localhost:8080`, `::1` of `[::1]:8080`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


def _is_local_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")
