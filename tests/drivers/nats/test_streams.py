"""Streams as topics: what altering changes, on streams that other programs made too."""

import asyncio
from typing import Any

import msgspec
import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.nats.streams import (
    NANO,
    POLICY,
    Stream,
    altered,
    made,
    policy_of,
    seconds,
    stream_in,
    topic_row,
)
from penstock.vocabulary.policy import TopicPolicy
from tests.contracts.suites.world import unique

THEIRS: dict[str, Any] = {
    "name": "fleet", "subjects": ["fleet.>"], "retention": "limits", "storage": "file",
    "num_replicas": 3, "max_msgs": 100, "max_bytes": -1, "max_age": 0, "discard": "old",
    "duplicate_window": 120 * NANO, "description": "theirs", "metadata": {"owner": "ops"},
}  # fmt: skip


def test_altering_changes_what_was_named_and_nothing_else() -> None:
    changed = altered(THEIRS, TopicPolicy(max_age_s=60))
    assert changed is not None
    kept = {**changed, "max_age": 0, "duplicate_window": 120 * NANO}
    kept["metadata"] = {key: kept["metadata"][key] for key in ("owner",)}
    assert kept == THEIRS
    assert (changed["max_age"], changed["duplicate_window"]) == (60 * NANO, 60 * NANO)
    assert policy_of(changed) == TopicPolicy(max_age_s=60)
    again = altered(changed, TopicPolicy(max_age_s=60, max_bytes=5_000))
    assert again is not None
    assert (again["max_age"], again["max_bytes"], again["max_msgs"]) == (60 * NANO, 5_000, 100)
    assert altered(again, TopicPolicy(max_age_s=60, max_bytes=5_000)) is None
    free = altered(again, TopicPolicy(max_age_s=60))
    assert free is not None
    assert (free["max_bytes"], policy_of(free)) == (-1, TopicPolicy(max_age_s=60))


def test_the_window_of_our_own_stream_follows_its_age() -> None:
    ours = made("orders", TopicPolicy(max_age_s=4.35), replicas=1, has_ttl=True)
    assert policy_of(ours) == TopicPolicy(max_age_s=4.35), "no rounding is taken for a change"
    assert ours["duplicate_window"] == ours["max_age"]
    longer = altered(ours, TopicPolicy(max_age_s=3_600))
    assert longer is not None
    assert longer["duplicate_window"] == 600 * NANO


def test_limits_are_those_the_stream_has_whoever_set_them() -> None:
    assert policy_of({**THEIRS, "max_age": 7 * NANO}) == TopicPolicy(max_age_s=7)
    assert policy_of({**THEIRS, "max_bytes": 9}) == TopicPolicy(max_bytes=9)
    refusing = {**THEIRS, "max_bytes": 9, "discard": "new"}
    assert policy_of(refusing) == TopicPolicy(max_bytes_refuse=9)
    assert policy_of({**THEIRS, "discard": "new"}) == TopicPolicy()
    ours = made("orders", TopicPolicy(max_bytes=9), replicas=1, has_ttl=False)
    assert policy_of({**ours, "max_bytes": 10}) == TopicPolicy(max_bytes=10)
    dead = TopicPolicy(retain_s=None, dead_of="orders\ns")
    assert policy_of(made("orders.dead.s", dead, replicas=1, has_ttl=True)) == dead
    removing = altered(refusing, msgspec.structs.replace(policy_of(refusing), max_bytes=8))
    assert removing is not None
    assert (removing["max_bytes"], removing["discard"]) == (8, "old")
    assert policy_of(removing) == TopicPolicy(max_bytes=8)


def test_a_stream_with_other_messages_is_not_a_topics_own() -> None:
    for config, is_only in (
        ({"name": "s", "subjects": ["a"]}, True),
        ({"name": "s", "subjects": ["a", "b"]}, False),
        ({"name": "s", "subjects": ["a.>"]}, False),
        ({"name": "s", "subjects": ["a"], "sources": [{"name": "t"}]}, False),
    ):
        assert stream_in(config).is_only("a") is is_only, config
    assert stream_in(THEIRS) == Stream("fleet", ("fleet.>",), has_direct=False, has_ttl=False)


def test_a_topic_among_others_counts_its_own_messages() -> None:
    state = {"messages": 9, "bytes": 90, "last_seq": 10, "subjects": {"fleet.a": 3}}
    row = topic_row("fleet.a", {"config": THEIRS, "state": state})
    assert (row.messages, row.bytes, row.published) == (3, None, None)
    own = {"config": {**THEIRS, "subjects": ["fleet.a"]}, "state": state}
    row = topic_row("fleet.a", own)
    assert (row.messages, row.bytes, row.published) == (9, 90, 10)


def test_times_of_the_server() -> None:
    assert seconds("2023-11-14T22:13:20.5Z") == 1_700_000_000.5
    assert seconds("") == 0.0


def test_altering_a_topic_keeps_the_stream_another_program_made(nats_server: Server) -> None:
    root = unique("fleet")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.open()
            api = client._opened().carrier.connection.api  # type: ignore[attr-defined]
            await api(
                f"STREAM.CREATE.{root}", name=root, subjects=[f"{root}.>"], storage="memory",
                max_msgs=100, max_msgs_per_subject=10, description="theirs",
                metadata={"owner": "ops"}, duplicate_window=120 * NANO,
            )  # fmt: skip
            before = (await api(f"STREAM.INFO.{root}"))["config"]
            await client.alter_topic(f"{root}.a", max_age_s=60)
            after = (await api(f"STREAM.INFO.{root}"))["config"]
            assert after["max_age"] == 60 * NANO
            assert after["metadata"].pop(POLICY)
            for config in (before, after):
                for changed in ("max_age", "duplicate_window"):
                    del config[changed]
                config["metadata"] = {"owner": config["metadata"]["owner"]}
            assert after == before
            await client.alter_topic(f"{root}.a", max_age_s=None, max_bytes=10_000)
            after = (await api(f"STREAM.INFO.{root}"))["config"]
            assert (after["max_age"], after["max_bytes"], after["max_msgs"]) == (0, 10_000, 100)
            policy = (await client.describe_topic(f"{root}.b"))["policy"]
            assert policy == {"max_bytes": 10_000}

    asyncio.run(scenario())


def test_altering_says_that_the_limits_hold_for_all_subjects(
    nats_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    root = unique("warned")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.create_topic(root)
            await client.alter_topic(root, max_age_s=600)
            assert not caplog.records
            carrier = client._opened().carrier  # type: ignore[attr-defined]
            await carrier.connection.api(
                f"STREAM.CREATE.{root}-s", name=f"{root}-s", subjects=[f"{root}.a", f"{root}.b"]
            )
            await client.alter_topic(f"{root}.a", max_age_s=600)
            assert f"hold for all subjects of stream '{root}-s'" in caplog.text

    asyncio.run(scenario())
