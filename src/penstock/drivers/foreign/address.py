"""The URL of a foreign broker: hosts, credentials, options. Credentials are never printed.

    scheme://[user[:password]@]host[:port][,host[:port]…][/path][?option=value&…]

Unknown options are refused by name. Pure.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from penstock.vocabulary.credentials import HIDDEN, without_credentials
from penstock.vocabulary.errors import InvalidArgument

PORT_MAX: Final = 65_535
NUMBER_MAX: Final = 1_000_000_000
COMMON: Final[Mapping[str, type]] = {
    "connect_s": float,
    "publish_s": float,
    "tls": bool,
    "tls_ca": str,
    "tls_cert": str,
    "tls_key": str,
}
"""Options of every foreign URL: how long opening may take, how long a publish is tried, and TLS."""
TLS_FILES: Final = ("tls_ca", "tls_cert", "tls_key")
TLS_SCHEMES: Final[Mapping[str, str]] = {"rediss": "redis"}
"""Schemes that mean TLS, and those that do not."""
PLACES: Final[Mapping[str, str]] = {"pubsub": "PROJECT"}
"""What stands behind `//`, where it is no host."""
CONNECT_S_DEFAULT: Final = 10.0
PUBLISH_S_DEFAULT: Final = 30.0
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Address(NamedTuple):
    """What a URL says."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    user: str | None
    password: str | None
    path: str
    options: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Address {self.text}>"

    @property
    def text(self) -> str:
        """The URL without credentials, for people."""
        listed = ",".join(f"{host}:{port}" if port else host for host, port in self.hosts)
        return without_credentials(f"{self.scheme}://{listed}{self.path}")

    @property
    def connect_s(self) -> float:
        """How long opening may take."""
        return float(self.options.get("connect_s", CONNECT_S_DEFAULT))

    @property
    def publish_s(self) -> float:
        """How long a publish is tried while the broker cannot be reached."""
        return float(self.options.get("publish_s", PUBLISH_S_DEFAULT))

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted: by its scheme, asked for, or a file is named."""
        return (
            self.scheme in TLS_SCHEMES
            or bool(self.options.get("tls"))
            or any(name in self.options for name in TLS_FILES)
        )


def check_tls(address: Address) -> None:
    """Raises InvalidArgument when what a URL says of TLS cannot be meant."""
    options = address.options
    named = [name for name in TLS_FILES if name in options]
    if address.scheme in TLS_SCHEMES and options.get("tls") is False:
        raise InvalidArgument(
            f"{address.text} says tls=false, and {address.scheme}:// is TLS: write "
            f"{TLS_SCHEMES[address.scheme]}:// for a connection without it"
        )
    if named and options.get("tls") is False:
        raise InvalidArgument(f"{address.text} says tls=false and names a {named[0]}: which is it?")
    if "tls_key" in options and "tls_cert" not in options:
        raise InvalidArgument(f"{address.text} names a tls_key and no tls_cert it belongs to")
    for name in named:
        if not Path(options[name]).is_file():
            raise InvalidArgument(f"option {name!r} of {address.text}: there is no file "
                                  f"{options[name]!r}")  # fmt: skip


def place_of(url: str) -> str:
    """What tells one broker from another: a URL without who signs in.

    For digests, not for people: what is shown goes through `without_credentials`, which hides more.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    authority, slash, path = _cut(rest)
    _, at, hosts = authority.rpartition("@")
    return f"{scheme}://{HIDDEN}@{hosts}{slash}{path}" if at else url


def parse(url: str, port: int, options: Mapping[str, type]) -> Address:
    """The parts of a URL. Raises InvalidArgument, whose text has no credentials."""
    shown = without_credentials(url)
    scheme, mark, rest = url.partition("://")
    if not mark:
        name = url.partition(":")[0]
        place = PLACES.get(name, "HOST")
        raise InvalidArgument(f"{shown!r} has no '//': write '{name}://{place}'")
    try:
        return _parse(scheme, rest, port, {**COMMON, **options}, shown)
    except InvalidArgument:
        if not _is_ambiguous(shown, rest):
            raise
        # What is wrong may be a part of a password that was taken for a host or an option.
        raise InvalidArgument(
            f"{shown!r} cannot be read: in a user or a password, write / as %2F, ? as %3F, "
            "# as %23, @ as %40 and % as %25"
        ) from None


def _is_ambiguous(shown: str, rest: str) -> bool:
    """True when an `@` stands behind the first / or ?, and nobody knows why."""
    _, _, tail = _cut(rest)
    return "@" in tail and f"{HIDDEN}@" in shown


def _parse(
    scheme: str, rest: str, port: int, options: Mapping[str, type], shown: str
) -> Address:  # fmt: skip
    authority, slash, tail = _cut(rest)
    credentials, at, listed = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    hosts = tuple(_host(each, port, shown) for each in listed.split(",")) if listed else ()
    if not hosts:
        place = PLACES.get(scheme, "HOST")
        raise InvalidArgument(f"{shown!r} names no {place.lower()}: write '{scheme}://{place}'")
    path, _, query = (slash + tail).partition("?")
    return Address(
        scheme,
        hosts,
        unquote(user) if at and user else None,
        unquote(password) if colon else None,
        path,
        _options(query, options, shown, scheme),
    )


def _cut(rest: str) -> tuple[str, str, str]:
    """Authority, the mark that ends it, and what follows."""
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    if not ends:
        return rest, "", ""
    end = min(ends)
    return rest[:end], rest[end], rest[end + 1 :]


def _host(text: str, port: int, shown: str) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        number = rest.removeprefix(":")
    else:
        host, _, number = text.partition(":")
    if not host:
        raise InvalidArgument(f"{shown!r} has an empty host")
    if not number:
        return host, port
    if not number.isdecimal() or not 0 < int(number) <= PORT_MAX:
        raise InvalidArgument(f"{shown!r} has a wrong port {number!r}: it is 1 to {PORT_MAX}")
    return host, int(number)


def _options(
    query: str, known: Mapping[str, type], shown: str, scheme: str
) -> dict[str, Any]:  # fmt: skip
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        kind = known.get(name)
        if kind is None:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
            raise InvalidArgument(f"{scheme}: URLs have no option {name!r}; {hint}")
        if name in found:
            raise InvalidArgument(f"option {name!r} is given twice in {shown!r}")
        found[name] = _value(name, value, kind)
    return found


def _value(name: str, value: str, kind: type) -> Any:
    if kind is bool:
        if value.lower() not in _BOOLEANS:
            raise InvalidArgument(f"option {name!r} is true or false, not {value!r}")
        return _BOOLEANS[value.lower()]
    if kind is str:
        return value
    try:
        number = kind(value)
    except ValueError:
        number = -1
    if not 0 < number < NUMBER_MAX:
        raise InvalidArgument(f"option {name!r} is a number above 0, not {value!r}")
    return number
