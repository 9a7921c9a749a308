"""What a person may have meant by a URL that no driver takes. Pure.

It sees URLs without their credentials only, and never suggests less safety than was asked for.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

PORT: Final = 8001
"""Where a Penstock server usually takes frames."""
ENCRYPTED: Final = {
    "mqtts": ("mqtt", 8883),
    "mqtt+ssl": ("mqtt", 8883),
    "mqtt+tls": ("mqtt", 8883),
    "ssl": ("mqtt", 8883),
    "nats+tls": ("nats", 4222),
    "tls": ("nats", 4222),
    "kafkas": ("kafka", 9093),
    "kafka+ssl": ("kafka", 9093),
    "kafka+tls": ("kafka", 9093),
    "redis+tls": ("redis", 6379),
    "redis+ssl": ("redis", 6379),
}
"""What other programs call a connection with TLS: our scheme, and the port it usually has."""
WEB: Final = ("http", "https", "ws", "wss")
USUAL: Final = {1883: "mqtt", 4222: "nats", 6379: "redis", 9092: "kafka"}
"""Whose port it is, when nothing else is said."""
FORMS: Final = {"file": "file:DIR", "memory": "memory:", "pubsub": "pubsub://PROJECT"}
_BARE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9.\-]*|\[[0-9A-Fa-f:.]+\]):(\d{1,5})/?")
_AUTHORITY: Final = re.compile(r"(?://)?(?:\*\*\*@)?([^/?]*)")


def hint_of(shown: str, known: Iterable[str]) -> str:
    """What is wrong with a URL of no known scheme, and what to write instead."""
    bare = _BARE.fullmatch(shown)
    if bare is not None:
        scheme = USUAL.get(int(bare[2]), "penstock")
        place = f"{bare[1]}:{bare[2]}"
        return f"{shown!r} is not a URL: it has no scheme; write for example '{scheme}://{place}'"
    scheme, mark, rest = shown.partition(":")
    if not mark:
        return (
            f"{shown!r} is not a URL: it has no scheme; for a folder write 'file:{shown}', for a "
            f"server 'penstock://{shown}'"
        )
    return f"unknown scheme {scheme!r} in URL {shown!r}; {_meant(scheme.lower(), rest, known)}"


def _meant(scheme: str, rest: str, known: Iterable[str]) -> str:
    if scheme in ENCRYPTED:
        ours, port = ENCRYPTED[scheme]
        return f"for TLS write '{ours}:{_with_tls(rest, port)}'"
    if scheme in WEB:
        host = _host(rest)[0] or "HOST"
        return f"for a Penstock server write 'penstock://{host}:{PORT}'"
    close = get_close_matches(scheme, known, n=1)
    if close:
        return f"did you mean '{close[0]}:{rest}'?"
    return f"known: {', '.join(FORMS.get(each, f'{each}://HOST') for each in known)}"


def _host(rest: str) -> tuple[str, str]:
    """The host of what stands behind a scheme, and its port, which may be missing."""
    found = _AUTHORITY.match(rest)
    host, _, port = (found[1] if found else "").rpartition(":")
    return (host, port) if host else (port, "")


def _with_tls(rest: str, port: int) -> str:
    """The same place, with TLS asked for, at the port it had."""
    found = _AUTHORITY.match(rest)
    if found is not None and found[1] and ":" not in found[1]:
        rest = f"{rest[: found.end()]}:{port}{rest[found.end() :]}"
    return f"{rest}{'&' if '?' in rest else '?'}tls=true"
