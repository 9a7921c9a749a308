"""Numbers for Prometheus, in its text format: what the broker and its topics look like now."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.broker import Broker

if TYPE_CHECKING:
    from penstock.server.http import HttpListener

BROKER: Final = (
    ("generation", "counter", "penstock_broker_starts_total", "Starts of the broker."),
    ("topics", "gauge", "penstock_topics", "Topics."),
    ("subscriptions", "gauge", "penstock_subscriptions", "Durable subscriptions."),
    ("consumers", "gauge", "penstock_consumers", "Attached consumers."),
    ("messages_held", "gauge", "penstock_messages_held", "Messages held."),
    ("segments", "gauge", "penstock_journal_segments", "Segments of the journal."),
    ("disk_bytes", "gauge", "penstock_journal_disk_bytes", "Bytes of the journal on disk."),
    ("live_bytes", "gauge", "penstock_journal_live_bytes", "Bytes of held messages."),
    ("records", "counter", "penstock_journal_records_total", "Records written."),
)
TOPIC: Final = (
    ("messages", "gauge", "penstock_topic_messages", "Messages a topic holds."),
    ("bytes", "gauge", "penstock_topic_bytes", "Bytes a topic holds."),
    ("published", "counter", "penstock_topic_published_total", "Messages ever published."),
)
SUBSCRIPTION: Final = (
    ("waiting", "gauge", "penstock_subscription_pending", "Messages that wait."),
    ("leased", "gauge", "penstock_subscription_ack_pending", "Delivered, not settled."),
    ("delayed", "gauge", "penstock_subscription_delayed", "Messages that are not due."),
    ("acked", "counter", "penstock_subscription_acked_total", "Messages acked."),
    ("dead", "counter", "penstock_subscription_dead_total", "Messages dead-lettered."),
    ("expired", "counter", "penstock_subscription_expired_total", "Messages expired."),
    ("dropped", "counter", "penstock_subscription_dropped_total", "Messages dropped."),
)
LEVELS: Final = ("ok", "degraded", "failed")


def prometheus(broker: Broker, listener: "HttpListener") -> str:
    """All numbers as text."""
    stats = broker.stats()
    lines: list[str] = []
    for field, kind, name, text in BROKER:
        lines += _metric(kind, name, text, [("", stats[field])])
    status = stats["health"]["status"]
    rows = [(_labels(status=level), int(level == status)) for level in LEVELS]
    lines += _metric("gauge", "penstock_health", "1 for the state the store is in.", rows)
    topics = broker.topics()
    for field, kind, name, text in TOPIC:
        found = [(_labels(topic=row["topic"]), row[field]) for row in topics]
        lines += _metric(kind, name, text, found)
    subscriptions = broker.subscriptions()
    for field, kind, name, text in SUBSCRIPTION:
        found = [(_place(row), row[field]) for row in subscriptions if field in row]
        lines += _metric(kind, name, text, found)
    consumers = [(_place(row), len(row.get("consumers", ()))) for row in subscriptions]
    lines += _metric(
        "gauge", "penstock_subscription_consumers", "Consumers of a subscription.", consumers
    )
    http = [("", len(listener.connections))]
    lines += _metric("gauge", "penstock_http_connections", "Open HTTP connections.", http)
    asked = [("", listener.requests)]
    lines += _metric("counter", "penstock_http_requests_total", "HTTP requests.", asked)
    return "\n".join(lines) + "\n"


def _place(row: dict[str, Any]) -> str:
    return _labels(topic=row["topic"], subscription=row["subscription"], kind=row["kind"])


def _metric(kind: str, name: str, text: str, rows: Iterable[tuple[str, Any]]) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{labels} {value}" for labels, value in rows]


def _labels(**labels: str) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
