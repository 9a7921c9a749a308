"""The capability file: which broker an application uses, what it receives and how. TOML, checked.

    specversion = "0.2"

    [[capability]]
    name = "pubsub.mqtt"            # pubsub.<broker>

    [[capability.config]]
    url = "tcp://localhost:1883"
    qos = 1                         # 0 at most once, 1 at least once (default), 2
    queue = "user/+"                # each message to one receiver; or: topic = … to every one
    delivery = "pull"               # the application receives; or "push": a handler is called
    # on_message = "on_message"     # push: the name of the handler

Everything that is wrong is told at once, with its file, table and key. Pure but for reading.
"""

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.drivers.choose import check_url
from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import InvalidConfiguration, InvalidName, PenstockError
from penstock.vocabulary.filters import check_filter

SPECVERSION: Final = "0.2"
PREFIX: Final = "pubsub."
SCHEMES: Final = {
    "kafka": ("kafka",),
    "kubemq": ("kubemq",),
    "mqtt": ("mqtt", "tcp"),
    "nats": ("nats",),
    "penstock": ("penstock", "file", "memory"),
    "pubsub": ("pubsub",),
    "redis": ("redis", "rediss"),
}
"""Broker → the schemes of its URLs."""
DELIVERIES: Final = ("pull", "push")
_KEYS: Final = ("url", "qos", "queue", "topic", "delivery", "on_message")


class Config(NamedTuple):
    """One `[[capability.config]]`."""

    where: str
    """File and table, for errors."""
    url: str
    qos: int
    filter: str
    is_queue: bool
    handler: str | None
    """The name of the handler; None = the application receives."""

    def at(self, key: str) -> str:
        """File, table and key."""
        return f"{self.where}, key {key!r}"


class CapabilityFile(NamedTuple):
    """What a file says."""

    path: str
    url: str
    configs: tuple[Config, ...]


def read_capabilities(path: str | Path, url: str | None = None) -> CapabilityFile:
    """What a file says, with another URL if one is given. Raises InvalidConfiguration."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfiguration(f"{path}: is not UTF-8 text: {error}") from error
    return parse_capabilities(text, str(path), url)


def parse_capabilities(text: str, path: str, url: str | None = None) -> CapabilityFile:
    """What the text of a file says. Raises InvalidConfiguration."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(f"{path}: is not TOML: {error}") from error
    checked = Checked(path, url)
    checked.root(tree)
    problems = checked.problems
    if len(problems) == 1:
        raise InvalidConfiguration(problems[0], problems=problems)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise InvalidConfiguration(f"{path} has {len(problems)} mistakes:\n{listed}",
                                   problems=problems)  # fmt: skip
    return CapabilityFile(path, checked.configs[0].url, tuple(checked.configs))


class Checked:
    """Walks through a file and notes what is wrong."""

    def __init__(self, path: str, url: str | None) -> None:
        self.problems: list[str] = []
        self.configs: list[Config] = []
        self._path = path
        self._url = url

    def root(self, tree: dict[str, Any]) -> None:
        """The whole file."""
        self._unknown(self._path, tree, ("specversion", "capability"))
        version = tree.get("specversion")
        if version != SPECVERSION:
            self._say(self._path, "specversion", f"must be {SPECVERSION!r}, not {version!r}")
        listed = tree.get("capability")
        if not isinstance(listed, list) or not listed or not _are_tables(listed):
            self._say(self._path, "capability", "is missing: write a table [[capability]]")
            return
        for number, table in enumerate(listed, 1):
            self._capability(table, f"{self._path}: [[capability]] {number}")
        self._together()

    def _capability(self, table: dict[str, Any], where: str) -> None:
        self._unknown(where, table, ("name", "config"))
        name = table.get("name")
        broker = name.removeprefix(PREFIX) if isinstance(name, str) else None
        if not isinstance(name, str) or not name.startswith(PREFIX) or broker not in SCHEMES:
            known = ", ".join(PREFIX + each for each in SCHEMES)
            self._say(where, "name", f"must be one of {known}, not {name!r}")
            broker = None
        else:
            where = f"{where} {name!r}"
        listed = table.get("config")
        if not isinstance(listed, list) or not listed or not _are_tables(listed):
            self._say(where, "config", "is missing: write a table [[capability.config]]")
            return
        for number, row in enumerate(listed, 1):
            self._config(row, f"{where}, [[capability.config]] {number}", broker)

    def _config(self, row: dict[str, Any], where: str, broker: str | None) -> None:
        before = len(self.problems)
        self._unknown(where, row, _KEYS)
        url = self._checked_url(row, where, broker)
        qos = row.get("qos", 1)
        if type(qos) is not int or qos not in (0, 1, 2):  # neither true nor 1.0
            self._say(where, "qos", f"must be 0, 1 or 2, not {qos!r}")
        wanted = self._checked_filter(row, where)
        handler = self._checked_delivery(row, where)
        if len(self.problems) == before:
            self.configs.append(Config(where, url, qos, wanted, "queue" in row, handler))

    def _checked_url(self, row: dict[str, Any], where: str, broker: str | None) -> str:
        if self._url is not None:
            return self._url
        url = row.get("url")
        if not isinstance(url, str) or not url:
            self._say(where, "url", f"must be a URL such as 'tcp://localhost:1883', not {url!r}")
            return ""
        try:
            scheme = check_url(url)
        except PenstockError as error:
            self._say(where, "url", error.text)
            return ""
        if broker is not None and scheme not in SCHEMES[broker]:
            self._say(
                where, "url",
                f"{without_credentials(url)!r} is no URL of {PREFIX}{broker}: it begins with "
                + " or ".join(f"'{each}:'" for each in SCHEMES[broker]),
            )  # fmt: skip
        return url

    def _checked_filter(self, row: dict[str, Any], where: str) -> str:
        given = [key for key in ("queue", "topic") if key in row]
        if len(given) != 1:
            said = "both 'queue' and 'topic' are given" if given else "neither is given"
            self._say(
                where, "queue' or 'topic",
                f"{said}: give exactly one, 'queue' to share messages between receivers, 'topic' "
                "to bring every message to every receiver",
            )  # fmt: skip
            return ""
        [key] = given
        try:
            return check_filter(row[key])
        except InvalidName as error:
            self._say(where, key, error.text)
        except TypeError:
            self._say(where, key, f"must be text, not {row[key]!r}")
        return ""

    def _checked_delivery(self, row: dict[str, Any], where: str) -> str | None:
        delivery, handler = row.get("delivery"), row.get("on_message")
        if delivery not in DELIVERIES:
            self._say(where, "delivery", f"must be 'pull' or 'push', not {delivery!r}")
        elif delivery == "push" and (not isinstance(handler, str) or not handler):
            self._say(
                where, "on_message",
                f"push delivery needs the name of a handler, not {handler!r}: a function of the "
                "application with @register_message",
            )  # fmt: skip
        elif delivery == "pull" and handler is not None:
            self._say(
                where, "on_message", "is for delivery = 'push'; with 'pull' call receive or stream"
            )
        else:
            return handler
        return None

    def _together(self) -> None:
        """What several tables must agree on."""
        seen: dict[tuple[str, bool], Config] = {}
        for config in self.configs:
            first = self.configs[0]
            if config.url != first.url:
                self.problems.append(
                    f"{config.at('url')}: one broker is active at a time, and {first.at('url')} "
                    f"names another ({without_credentials(first.url)}): put this one in a file of "
                    "its own"
                )
            same = seen.setdefault((config.filter, config.is_queue), config)
            if same is not config:
                key = "queue" if config.is_queue else "topic"
                self.problems.append(
                    f"{config.at(key)}: {config.filter!r} is in {same.where} already"
                )

    def _unknown(self, where: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                close = get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
                self._say(where, key, f"is unknown; {hint}")

    def _say(self, where: str, key: str, text: str) -> None:
        self.problems.append(f"{where}, key {key!r}: {text}".replace('"', "'"))


def _are_tables(listed: list[Any]) -> bool:
    return all(isinstance(each, dict) for each in listed)
