"""What a kafka: URL means in the words of Kafka's client library. Pure."""

import os
import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.drivers.foreign.address import Address
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import PARTITIONS_MAX
from penstock.vocabulary.message import Durability

ACKS: Final = {"all": "all", "leader": "1", "none": "0"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SPEC: Final = "3:2"
RETRIES: Final = 8
SESSION_S: Final = 10.0
TRANSACTION_MS: Final = 20_000
"""Kafka aborts a transaction that was begun so long ago. Until then, what is stored behind one that
a dead process left open is hidden from readers."""
SETTLED_S_MAX: Final = TRANSACTION_MS / 1000 + 15.0
"""By then every transaction has ended: Kafka looks every ten seconds for those that are too old."""
SESSION_S_MIN: Final = 6.0
MAX_POLL_S: Final = 300.0
COPIES_MAX: Final = 32
USER: Final = "PENSTOCK_KAFKA_USER"
PASSWORD: Final = "PENSTOCK_KAFKA_PASSWORD"  # noqa: S105 - the name of a variable


class Shape(NamedTuple):
    """How many partitions a topic has, and how many copies of each."""

    partitions: int
    copies: int


class Settings(NamedTuple):
    """A kafka: URL, understood."""

    text: str
    shape: Shape
    startup: tuple[tuple[str, Shape], ...]
    acks: str
    retries: int
    min_insync: int | None
    session_s: float
    max_poll_s: float
    publish_s: float
    common: dict[str, Any]
    """For every handle of the library. Holds the password: never printed."""

    def __repr__(self) -> str:
        return f"<Settings of {self.text}>"

    @property
    def least(self) -> int:
        """min.insync.replicas of a topic with the usual number of copies."""
        return self.least_of(self.shape.copies)

    def least_of(self, copies: int) -> int:
        """Copies that must have a message before it is confirmed; one broker may always fail."""
        return min(self.min_insync or (2 if copies >= 3 else 1), copies)  # noqa: PLR2004

    def level(self, least: int) -> Durability:
        """How safe a confirmed message is in a topic with this min.insync.replicas."""
        if self.acks == "none":
            return Durability.MEMORY
        return (
            Durability.REPLICATED if self.acks == "all" and least > 1 else Durability.WRITTEN
        )  # fmt: skip


def settings_of(address: Address, environment: Mapping[str, str] = os.environ) -> Settings:
    """What the URL says. Raises InvalidArgument, whose text has no credentials."""
    options = address.options
    acks = str(options.get("acks", "all"))
    if acks not in ACKS:
        raise InvalidArgument(f"option 'acks' is one of {', '.join(ACKS)}, not {acks!r}")
    if address.path.strip("/"):
        raise InvalidArgument(
            f"{address.text} has a path; a kafka: URL names hosts only, topics are named in calls"
        )
    shape = shape_of(str(options.get("topics", SPEC)), "option 'topics'")
    startup = str(options.get("startup", ""))
    session_s = max(float(options.get("session_s", SESSION_S)), SESSION_S_MIN)
    return Settings(
        text=address.text,
        shape=shape,
        startup=tuple(spec_of(text, shape) for text in startup.split(",") if text),
        acks=acks,
        retries=int(options.get("retries", RETRIES)),
        min_insync=options.get("min_insync"),
        session_s=session_s,
        max_poll_s=float(options.get("max_poll_s", MAX_POLL_S)),
        publish_s=address.publish_s,
        common={**_common(address), **_security(address, environment)},
    )


def spec_of(text: str, usual: Shape) -> tuple[str, Shape]:
    """A topic spec such as `monitoring.pms:3:2`: its name and shape. Raises InvalidArgument."""
    parts = text.rsplit(":", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():  # noqa: PLR2004
        return parts[0], shape_of(f"{parts[1]}:{parts[2]}", f"topic {text!r}")
    return text, usual


def shape_of(text: str, what: str) -> Shape:
    """Partitions and copies, such as `3:2`. Raises InvalidArgument."""
    partitions, _, copies = text.partition(":")
    if partitions.isdecimal() and copies.isdecimal():
        found = Shape(int(partitions), int(copies))
        if 0 < found.partitions <= PARTITIONS_MAX and 0 < found.copies <= COPIES_MAX:
            return found
    raise InvalidArgument(
        f"{what} is partitions:copies such as '3:2', with 1 to {PARTITIONS_MAX} partitions and 1 "
        f"to {COPIES_MAX} copies, not {text!r}"
    )


def _common(address: Address) -> dict[str, Any]:
    hosts = (
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.hosts
    )
    return {
        "bootstrap.servers": ",".join(hosts),
        # A broker that comes back is noticed within a second, not after ten.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 5_000,
        "socket.keepalive.enable": True,
        "topic.metadata.refresh.interval.ms": 30_000,
        "log_level": 4,
    }


def _security(address: Address, environment: Mapping[str, str]) -> dict[str, Any]:
    options = address.options
    user = address.user or environment.get(USER)
    found: dict[str, Any] = {}
    if user is not None:
        mechanism = str(
            options.get("sasl", "PLAIN" if address.has_tls else "SCRAM-SHA-512")
        ).upper()
        if mechanism not in MECHANISMS:
            raise InvalidArgument(f"option 'sasl' is one of {', '.join(MECHANISMS)}")
        found["sasl.mechanism"] = mechanism
        found["sasl.username"] = user
        found["sasl.password"] = address.password or environment.get(PASSWORD, "")
    elif "sasl" in options:
        raise InvalidArgument(
            f"{address.text} asks for SASL and names no user: write kafka://USER:PASSWORD@HOST, "
            f"or set {USER} and {PASSWORD}"
        )
    protocols = {
        (False, False): "PLAINTEXT", (False, True): "SASL_PLAINTEXT",
        (True, False): "SSL", (True, True): "SASL_SSL",
    }  # fmt: skip
    found["security.protocol"] = protocols[address.has_tls, user is not None]
    for name, kafkas in (
        ("tls_ca", "ssl.ca.location"), ("tls_cert", "ssl.certificate.location"),
        ("tls_key", "ssl.key.location"),
    ):  # fmt: skip
        if options.get(name):
            found[kafkas] = options[name]
    return found


# -- the handles of the library -------------------------------------------------------------------


def client_id(role: str) -> str:
    """`producer.<nnnn>`, `consumer.<nnnn>`."""
    return f"{role}.{random.randrange(10_000):04}"  # noqa: S311 - a name, not a secret


def producer_config(settings: Settings, bytes_max: int) -> dict[str, Any]:
    """A producer that stores each message once, in order, as long as `acks` is `all`."""
    return {
        **settings.common,
        "client.id": client_id("producer"),
        "acks": ACKS[settings.acks],
        "enable.idempotence": settings.acks == "all",
        "retries": settings.retries,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1_000,
        "message.timeout.ms": max(1_000, int(settings.publish_s * 1000)),
        "partitioner": "murmur2_random",
        "linger.ms": 0.5,
        "message.max.bytes": bytes_max,
        "queue.buffering.max.messages": 0,  # no limit: publishers wait while much is on its way
    }


def unit_config(settings: Settings, bytes_max: int, id: str) -> dict[str, Any]:
    """A producer of transactions."""
    return {
        **producer_config(settings, bytes_max),
        "acks": "all",
        "enable.idempotence": True,
        "transactional.id": id,
        "transaction.timeout.ms": TRANSACTION_MS,
        "message.timeout.ms": min(TRANSACTION_MS, max(1_000, int(settings.publish_s * 1000))),
    }


def consumer_config(settings: Settings, group: str) -> dict[str, Any]:
    """A consumer that commits by hand and gives partitions up one by one."""
    session_ms = int(settings.session_s * 1000)
    return {
        **settings.common,
        "client.id": client_id("consumer"),
        "group.id": group,
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": 500,
        "max.poll.interval.ms": session_ms,  # its thread polls all the time
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        # Its default, a second, throttles a consumer to a fifth of its speed.
        "fetch.queue.backoff.ms": 10,
        "fetch.error.backoff.ms": 100,
        "queued.max.messages.kbytes": 16_384,
    }


def looking_config(settings: Settings, group: str) -> dict[str, Any]:
    """A consumer that belongs to no group and says where a partition ends."""
    return {
        **consumer_config(settings, group),
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # the end is told by an answer without messages
    }
