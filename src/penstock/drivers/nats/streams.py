"""Streams as topics: their configuration, made and altered, and what it says of a topic. Pure."""

import json
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from penstock.drivers.foreign.carrier import TopicRow
from penstock.drivers.nats.subjects import safe_name, subject_of
from penstock.vocabulary.limits import DEAD_BYTES_MAX_DEFAULT, DEDUP_S
from penstock.vocabulary.policy import TopicPolicy

NANO: Final = 1_000_000_000
POLICY: Final = "penstock-policy"
NAME: Final = "penstock-name"


class Stream(NamedTuple):
    """What is known of the stream that has a topic's subject."""

    name: str
    subjects: tuple[str, ...]
    """All it holds; with `>` when messages of other streams are copied into it."""
    has_direct: bool
    has_ttl: bool

    def is_only(self, subject: str) -> bool:
        """True when it holds messages of this subject and no others."""
        return self.subjects == (subject,)


def stream_in(config: dict[str, Any]) -> Stream:
    """The stream a configuration describes."""
    subjects = tuple(config.get("subjects") or ())
    if config.get("sources") or config.get("mirror"):
        subjects = (*subjects, ">")
    return Stream(
        config["name"],
        subjects,
        has_direct=bool(config.get("allow_direct")),
        has_ttl=bool(config.get("allow_msg_ttl")),
    )


def made(topic: str, policy: TopicPolicy, *, replicas: int, has_ttl: bool) -> dict[str, Any]:
    """The configuration of a new stream for a topic."""
    size, discard = _size(policy)
    age = _age(policy)
    config: dict[str, Any] = {
        "name": safe_name(topic),
        "subjects": [subject_of(topic)],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "max_age": age,
        "max_bytes": size or -1,
        "discard": discard,
        "duplicate_window": _window(age),
        "allow_direct": True,
        "metadata": {NAME: topic, POLICY: _said(policy)},
    }
    if has_ttl:
        config["allow_msg_ttl"] = True
    return config


def altered(config: dict[str, Any], policy: TopicPolicy) -> dict[str, Any] | None:
    """The configuration with what the policy changes; None when that is nothing.

    All else stays as it is, whoever set it. The server wants no window for ids above the age.
    """
    now = policy_of(config)
    if policy.max_bytes is not None and policy.max_bytes != now.max_bytes and not policy.dead_of:
        policy = msgspec.structs.replace(policy, max_bytes_refuse=None)
    if policy == now:
        return None
    metadata = config.get("metadata") or {}
    changed = {**config, "metadata": {**metadata, POLICY: _said(policy)}}
    age = _age(policy)
    if age != _age(now):
        changed["max_age"] = age
        if NAME in metadata:
            changed["duplicate_window"] = _window(age)
        elif age:
            changed["duplicate_window"] = min(age, config.get("duplicate_window") or age)
    if _size(policy) != _size(now):
        size, discard = _size(policy)
        changed["max_bytes"] = size or -1
        if size:
            changed["discard"] = discard
    return changed


def policy_of(config: dict[str, Any]) -> TopicPolicy:
    """A topic's settings: what we noted, with the limits that the stream has by now."""
    said = (config.get("metadata") or {}).get(POLICY)
    policy = msgspec.convert(json.loads(said), TopicPolicy) if said else TopicPolicy()
    age = max(0, config.get("max_age") or 0)
    if _age(policy) != age:
        policy = msgspec.structs.replace(policy, max_age_s=age / NANO if age else None)
    size = max(0, config.get("max_bytes") or 0)
    discard = config.get("discard", "old") if size else "old"
    if _size(policy) != (size, discard):
        refuses = discard == "new"
        policy = msgspec.structs.replace(
            policy,
            max_bytes=None if refuses else size or None,
            max_bytes_refuse=size if refuses else None,
        )
    return policy


def topic_row(topic: str, info: dict[str, Any]) -> TopicRow:
    """A topic in what the server tells of its stream, asked with the topic's subject."""
    config, state = info["config"], info["state"]
    created = seconds(info.get("created", ""))
    policy, subject = policy_of(config), subject_of(topic)
    if stream_in(config).is_only(subject):
        counts = state["messages"], state["bytes"], state["last_seq"]
        return TopicRow(topic, policy, 1, *counts, created)
    count = (state.get("subjects") or {}).get(subject, 0)
    return TopicRow(topic, policy, 1, count, None, None, created)


def seconds(text: str) -> float:
    """A time of the server as Unix seconds; 0 when there is none."""
    whole, _, rest = text.rstrip("Z").partition(".")
    if not whole:
        return 0.0
    return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{rest or 0}")


def _said(policy: TopicPolicy) -> str:
    return json.dumps(msgspec.to_builtins(policy))


def _age(policy: TopicPolicy) -> int:
    return int((policy.max_age_s or 0) * NANO)


def _size(policy: TopicPolicy) -> tuple[int, str]:
    """The size limit of the stream, and what happens above it."""
    refuse = policy.max_bytes_refuse
    if policy.dead_of is not None and refuse is None:
        refuse = DEAD_BYTES_MAX_DEFAULT
    return refuse or policy.max_bytes or 0, "new" if refuse else "old"


def _window(age: int) -> int:
    return min(int(DEDUP_S * NANO), age or int(DEDUP_S * NANO))
