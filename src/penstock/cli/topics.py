"""`penstock topics`: list, create, describe, log, alter and delete topics."""

from argparse import ArgumentParser, Namespace
from typing import Any

from penstock.cli import values
from penstock.cli.command import Command, Group, nothing
from penstock.cli.confirming import add_yes, agreed
from penstock.cli.connection import opened
from penstock.cli.output import Output, duration, moment, number, plural, size
from penstock.cli.parser import BadUsage
from penstock.cli.topic_log import COMMAND as LOG
from penstock.vocabulary.limits import RETAIN_S_DEFAULT
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import OnDuplicate


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")


def _add_policy(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--durability",
        choices=[str(Durability.SYNCED), str(Durability.WRITTEN)],
        help="what a confirmation means: on disk (synced, default) or handed to the system "
        "(written: faster, may lose its last messages when the machine stops)",
    )
    parser.add_argument(
        "--retain",
        type=values.seconds_or_never,
        default=...,
        metavar="S",
        help="how long a message is kept that no subscription covered: 90, 12h, 7d, forever "
        f"(default {duration(RETAIN_S_DEFAULT)})",
    )
    parser.add_argument(
        "--replay",
        type=values.seconds,
        metavar="S",
        help="how long acked messages stay for seek and readers (default 0)",
    )
    parser.add_argument(
        "--keep-last",
        type=int,
        metavar="N",
        help="so many of the newest messages of each key stay (default 0)",
    )
    parser.add_argument(
        "--max-age",
        type=values.seconds_or_never,
        default=...,
        metavar="S",
        help="older messages are removed, acked or not: 90, 12h, 7d, none (default)",
    )
    parser.add_argument(
        "--max-bytes",
        type=values.attempts,
        default=...,
        metavar="N",
        help="above this size the oldest messages are removed: 500M, none (default)",
    )


def _add_on_duplicate(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--on-duplicate",
        choices=[str(each) for each in OnDuplicate],
        help="what a message with a known id does: it is not stored again (drop, default), or "
        "takes the place of those that wait (replace)",
    )


def _policy(arguments: Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if arguments.durability is not None:
        found["durability"] = arguments.durability
    if arguments.retain is not ...:
        found["retain_s"] = arguments.retain
    if getattr(arguments, "on_duplicate", None) is not None:  # chosen once, not to be altered
        found["on_duplicate"] = arguments.on_duplicate
    if arguments.replay is not None:
        found["replay_s"] = arguments.replay
    if arguments.keep_last is not None:
        found["keep_last"] = arguments.keep_last
    if arguments.max_age is not ...:
        found["max_age_s"] = arguments.max_age
    if arguments.max_bytes is not ...:
        found["max_bytes"] = arguments.max_bytes
    return found


def _limits(policy: dict[str, Any]) -> dict[str, str]:
    """The rules of a topic that differ from the usual, for people."""
    found: dict[str, str] = {}
    if policy.get("replay_s"):
        found["replay"] = duration(policy["replay_s"])
    if policy.get("keep_last"):
        found["keep last"] = f"{number(policy['keep_last'])} of each key"
    if policy.get("max_age_s"):
        found["max age"] = duration(policy["max_age_s"])
    if policy.get("max_bytes"):
        found["max bytes"] = size(policy["max_bytes"])
    return found


# -- list and describe -----------------------------------------------------------------------------


async def run_list(arguments: Namespace, output: Output) -> int:
    """Every topic with what it holds."""
    async with opened(arguments) as client:
        rows = await client.topics()
    if output.is_json:
        output.document(rows)
    elif not rows:
        output.notice("there are no topics yet: `penstock pub TOPIC BODY` creates one")
    else:
        output.table(
            ["TOPIC", ">PARTITIONS", ">MESSAGES", ">BYTES", ">PUBLISHED", "SUBSCRIPTIONS"],
            [
                [
                    row["topic"],
                    number(row["partitions"]),
                    number(row["messages"]),
                    size(row["bytes"]),
                    number(row["published"]),
                    ", ".join(row["subscriptions"]) or "–",
                ]
                for row in rows
            ],
        )
    return 0


async def run_describe(arguments: Namespace, output: Output) -> int:
    """One topic with its policy and its subscriptions."""
    async with opened(arguments) as client:
        topic = await client.describe_topic(arguments.topic)
        subscriptions = await client.subscriptions(arguments.topic)
    if output.is_json:
        output.document({**topic, "subscriptions": subscriptions})
        return 0
    policy = topic["policy"]
    output.pairs(
        {
            "topic": topic["topic"],
            "partitions": number(topic["partitions"]),
            "messages": f"{number(topic['messages'])} held, {number(topic['published'])} published",
            "bytes": size(topic["bytes"]),
            "created": moment(topic["created_at"]),
            "durability": policy.get("durability", Durability.SYNCED),
            "retain": duration(policy.get("retain_s", RETAIN_S_DEFAULT)),
            "duplicates": policy.get("on_duplicate", OnDuplicate.DROP),
            **_limits(policy),
        }
    )
    if subscriptions:
        output.say()
        show_subscriptions(output, subscriptions)
    return 0


def show_subscriptions(output: Output, rows: list[dict[str, Any]]) -> None:
    """A table of subscriptions: where every message is."""
    counts = ("waiting", "leased", "delayed", "acked", "dead", "expired", "dropped")
    output.table(
        ["TOPIC", "SUBSCRIPTION", "KIND", ">CONSUMERS", *(f">{name.upper()}" for name in counts)],
        [
            [
                row["topic"],
                row["subscription"],
                row["kind"],
                number(len(row["consumers"])),
                *(number(row[name]) for name in counts),
            ]
            for row in rows
        ],
    )
    show_readers(output, [row for row in rows if "reader" in row])


def show_readers(output: Output, rows: list[dict[str, Any]]) -> None:
    """A table of readers: whose they are, and how far each partition is done and planned."""
    if rows:
        output.table(
            ["TOPIC", "READER", "OWNER", ">PARTITION", ">PROGRESS", ">PLANNED"],
            [
                [
                    row["topic"],
                    row["subscription"],
                    row["reader"]["owner"] or "-",
                    *map(number, (index, progress, planned)),
                ]
                for row in rows
                for index, (progress, planned) in enumerate(
                    zip(row["reader"]["progress"], row["reader"]["planned"], strict=True)
                )
            ],
        )


# -- create, alter, delete -------------------------------------------------------------------------


def add_create(parser: ArgumentParser) -> None:
    """Adds the arguments of `create`."""
    _add_name(parser)
    parser.add_argument("--partitions", type=values.positive, default=1, metavar="N")
    _add_policy(parser)
    _add_on_duplicate(parser)


async def run_create(arguments: Namespace, output: Output) -> int:
    """Creates a topic; nothing happens when it exists as asked."""
    async with opened(arguments, creates=True) as client:
        await client.create_topic(
            arguments.topic, partitions=arguments.partitions, **_policy(arguments)
        )
        topic = await client.describe_topic(arguments.topic)
    if output.is_json:
        output.document(topic)
    else:
        parts = plural(topic["partitions"], "partition")
        output.notice(f"topic {arguments.topic!r} exists, with {parts}")
    return 0


def add_alter(parser: ArgumentParser) -> None:
    """Adds the arguments of `alter`."""
    _add_name(parser)
    parser.add_argument(
        "--partitions",
        type=values.positive,
        metavar="N",
        help="add partitions until there are N; they cannot be removed again",
    )
    _add_policy(parser)


async def run_alter(arguments: Namespace, output: Output) -> int:
    """Changes what is given and leaves the rest."""
    changes = _policy(arguments)
    if arguments.partitions is not None:
        changes["partitions"] = arguments.partitions
    if not changes:
        raise BadUsage(
            "say what to change: --partitions, --durability, --retain, --replay, --keep-last, "
            "--max-age or --max-bytes"
        )
    async with opened(arguments) as client:
        await client.alter_topic(arguments.topic, **changes)
        topic = await client.describe_topic(arguments.topic)
    if output.is_json:
        output.document(topic)
    else:
        output.notice(f"topic {arguments.topic!r} changed")
    return 0


def add_delete(parser: ArgumentParser) -> None:
    """Adds the arguments of `delete`."""
    _add_name(parser)
    add_yes(parser)


async def run_delete(arguments: Namespace, output: Output) -> int:
    """Removes a topic with its messages and subscriptions."""
    async with opened(arguments) as client:
        topic = await client.describe_topic(arguments.topic)
        holds = f"{plural(topic['messages'], 'message')}, " + plural(
            len(topic["subscriptions"]), "subscription"
        )
        if not agreed(arguments, output, f"delete topic {arguments.topic!r} with {holds}?"):
            output.notice("nothing was deleted")
            return 1
        await client.delete_topic(arguments.topic)
    if output.is_json:
        output.document({"deleted": arguments.topic, "messages": topic["messages"]})
    else:
        output.notice(f"topic {arguments.topic!r} deleted, with {holds}")
    return 0


GROUP = Group(
    "topics",
    "list, create, describe, alter and delete topics",
    (
        Command("list", "every topic and what it holds", "topics list", nothing, run_list),
        Command(
            "create",
            "create a topic",
            "topics create orders --partitions 4 --retain 7d\n"
            "topics create positions --keep-last 1 --on-duplicate replace",
            add_create,
            run_create,
        ),
        Command(
            "describe",
            "one topic, its policy and its subscriptions",
            "topics describe orders --json",
            _add_name,
            run_describe,
        ),
        LOG,
        Command(
            "alter",
            "change the policy of a topic, or add partitions",
            "topics alter orders --partitions 8\n"
            "topics alter orders --durability written --retain forever\n"
            "topics alter orders --replay 2d --max-age 30d --max-bytes 500M",
            add_alter,
            run_alter,
        ),
        Command(
            "delete",
            "delete a topic, its messages and its subscriptions",
            "topics delete orders --yes",
            add_delete,
            run_delete,
        ),
    ),
)
