"""`penstock subscriptions`: list, create, alter, seek and delete durable subscriptions."""

from argparse import ArgumentParser, Namespace
from typing import Any, Final

from penstock.cli import values
from penstock.cli.command import Command, Group
from penstock.cli.confirming import add_yes, agreed
from penstock.cli.connection import opened
from penstock.cli.output import Output, plural
from penstock.cli.parser import BadUsage, suggestion
from penstock.cli.topics import show_subscriptions
from penstock.vocabulary.errors import UnknownSubscription
from penstock.vocabulary.limits import LEASE_S_DEFAULT, MAX_ATTEMPTS_DEFAULT
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry

_RETRY: Final = {"max_attempts": "max_attempts", "retry_first": "first_s", "retry_max": "max_s"}
"""Options of the command line and the fields of Retry they set."""


def _add_names(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    parser.add_argument("subscription", metavar="NAME", help="name of the subscription")


def _add_policy(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--lease",
        type=values.seconds,
        metavar="S",
        help=f"how long a consumer has for a message (default {LEASE_S_DEFAULT:.0f})",
    )
    parser.add_argument(
        "--max-attempts",
        type=values.attempts,
        default=...,
        metavar="N",
        help=f"failures before the dead letters, or unlimited (default {MAX_ATTEMPTS_DEFAULT})",
    )
    parser.add_argument(
        "--retry-first", type=values.seconds, default=..., metavar="S", help="first pause"
    )
    parser.add_argument(
        "--retry-max", type=values.seconds, default=..., metavar="S", help="longest pause"
    )


def _policy(arguments: Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """What the options say, on top of a policy that is known already."""
    found: dict[str, Any] = {}
    if arguments.lease is not None:
        found["lease_s"] = arguments.lease
    given = {
        field: getattr(arguments, option)
        for option, field in _RETRY.items()
        if getattr(arguments, option) is not ...
    }
    if given:
        found["retry"] = Retry(**{**known.get("retry", {}), **given})
    return found


# -- list ------------------------------------------------------------------------------------------


def add_list(parser: ArgumentParser) -> None:
    """Adds the arguments of `list`."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only those of this topic")


async def run_list(arguments: Namespace, output: Output) -> int:
    """Every durable subscription, and where its messages are."""
    async with opened(arguments) as client:
        rows = await client.subscriptions(arguments.topic)
    if output.is_json:
        output.document(rows)
    elif rows:
        show_subscriptions(output, rows)
    else:
        output.notice("there are no subscriptions")
    return 0


# -- create, alter, delete -------------------------------------------------------------------------


def add_create(parser: ArgumentParser) -> None:
    """Adds the arguments of `create`."""
    _add_names(parser)
    parser.add_argument(
        "--kind",
        choices=[str(kind) for kind in Kind],
        default=str(Kind.SHARED),
        help="who gets a message: one consumer (shared, default), one at a time for each key "
        "(key_shared), every one (multicast), or whoever reads ranges (reader)",
    )
    parser.add_argument(
        "--qos",
        type=int,
        choices=(0, 1, 2),
        default=1,
        help="0: at most once, 1: at least once (default), 2: stale acks are refused",
    )
    parser.add_argument(
        "--start",
        type=values.start,
        metavar="WHERE",
        help="earliest (default), latest, a position such as 0:17, a time",
    )
    _add_policy(parser)


async def run_create(arguments: Namespace, output: Output) -> int:
    """Creates a subscription; nothing happens when it exists as asked."""
    settings = _policy(arguments, {})
    if arguments.start is not None:
        settings["start"] = arguments.start
    async with opened(arguments, creates=True) as client:
        await client.create_subscription(
            arguments.topic,
            arguments.subscription,
            kind=arguments.kind,
            qos=arguments.qos,
            **settings,
        )
        row = await _find(client, arguments)
    _tell(output, row, "exists")
    return 0


def add_alter(parser: ArgumentParser) -> None:
    """Adds the arguments of `alter`."""
    _add_names(parser)
    _add_policy(parser)


async def run_alter(arguments: Namespace, output: Output) -> int:
    """Changes what is given and leaves the rest."""
    if not _policy(arguments, {}):
        raise BadUsage("say what to change: --lease, --max-attempts, --retry-first, --retry-max")
    async with opened(arguments) as client:
        known = await _find(client, arguments)
        changes = _policy(arguments, known["policy"])
        await client.alter_subscription(arguments.topic, arguments.subscription, **changes)
        row = await _find(client, arguments)
    _tell(output, row, "changed")
    return 0


def add_seek(parser: ArgumentParser) -> None:
    """Adds the arguments of `seek`."""
    _add_names(parser)
    parser.add_argument(
        "to",
        type=values.start,
        metavar="WHERE",
        help="earliest, latest, a position such as 0:17 (moves that partition only), a time",
    )


async def run_seek(arguments: Namespace, output: Output) -> int:
    """Moves a subscription forward or back."""
    async with opened(arguments) as client:
        await client.seek(arguments.topic, arguments.subscription, arguments.to)
        row = await _find(client, arguments)
    _tell(output, row, f"moved: {plural(row['waiting'], 'message')} waiting")
    return 0


def add_delete(parser: ArgumentParser) -> None:
    """Adds the arguments of `delete`."""
    _add_names(parser)
    add_yes(parser)


async def run_delete(arguments: Namespace, output: Output) -> int:
    """Removes a subscription; what only it held is released."""
    async with opened(arguments) as client:
        row = await _find(client, arguments)
        left = sum(row[name] or 0 for name in ("waiting", "leased", "delayed"))
        question = (
            f"delete subscription {arguments.subscription!r} of {arguments.topic!r} with "
            f"{plural(left, 'unfinished message')}?"
        )
        if not agreed(arguments, output, question):
            output.notice("nothing was deleted")
            return 1
        await client.delete_subscription(arguments.topic, arguments.subscription)
    if output.is_json:
        output.document({"deleted": arguments.subscription, "topic": arguments.topic})
    else:
        output.notice(f"subscription {arguments.subscription!r} of {arguments.topic!r} deleted")
    return 0


async def _find(client: Any, arguments: Namespace) -> dict[str, Any]:
    rows: list[dict[str, Any]] = await client.subscriptions(arguments.topic)
    for row in rows:
        if row["subscription"] == arguments.subscription:
            return row
    known = [row["subscription"] for row in rows]
    hint = suggestion(arguments.subscription, known) if known else "it has none"
    raise UnknownSubscription(
        f"topic {arguments.topic!r} has no subscription {arguments.subscription!r}; {hint}"
    )


def _tell(output: Output, row: dict[str, Any], what: str) -> None:
    if output.is_json:
        output.document(row)
    else:
        output.notice(f"subscription {row['subscription']!r} of topic {row['topic']!r} {what}")


GROUP = Group(
    "subscriptions",
    "list, create, alter, seek and delete durable subscriptions",
    (
        Command(
            "list",
            "every subscription, and where its messages are",
            "subscriptions list orders",
            add_list,
            run_list,
        ),
        Command(
            "create",
            "create a subscription",
            "subscriptions create orders billing --start earliest --max-attempts 5\n"
            "subscriptions create commands robots --kind key_shared\n"
            "subscriptions create orders charges --qos 2",
            add_create,
            run_create,
        ),
        Command(
            "alter",
            "change the policy of a subscription",
            "subscriptions alter orders billing --lease 2m --retry-max 10m",
            add_alter,
            run_alter,
        ),
        Command(
            "seek",
            "move a subscription forward or back",
            "subscriptions seek orders billing earliest\n"
            "subscriptions seek orders billing 0:17\n"
            "subscriptions seek news screens@hall 2025-01-31T12:00   # one member of a multicast",
            add_seek,
            run_seek,
        ),
        Command(
            "delete",
            "delete a subscription; what only it held is released",
            "subscriptions delete orders billing --yes",
            add_delete,
            run_delete,
        ),
    ),
)
