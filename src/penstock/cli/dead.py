"""`penstock dead`: look at dead letters, send them back, or remove them for good."""

from argparse import ArgumentParser, Namespace
from typing import Any, Final

from penstock.cli import message, values
from penstock.cli.command import Command, Group
from penstock.cli.confirming import add_yes, agreed
from penstock.cli.connection import opened
from penstock.cli.looking import held
from penstock.cli.output import Output, moment, number, plural, size
from penstock.cli.parser import BadUsage
from penstock.client.administration import places
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.names import dead_topic

MARK: Final = "penstock-dead-"
"""Headers of a dead letter that tell its story start with this."""


def _add_choice(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="topic or pattern they came from")
    parser.add_argument("subscription", metavar="SUBSCRIPTION", help="subscription they failed in")
    parser.add_argument("--id", help="only the message with this id")
    parser.add_argument("--reason", metavar="TEXT", help="only where the reason contains TEXT")
    parser.add_argument("--limit", type=values.positive, metavar="N", help="at most N messages")


def _choice(arguments: Namespace) -> dict[str, Any]:
    return {
        "id": arguments.id,
        "reason_contains": arguments.reason,
        "limit": arguments.limit,
    }


# -- list ------------------------------------------------------------------------------------------


def add_list(parser: ArgumentParser) -> None:
    """Adds the arguments of `list`."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="topic or pattern they came from")
    parser.add_argument(
        "subscription", metavar="SUBSCRIPTION", nargs="?", help="subscription they failed in"
    )
    parser.add_argument("--id", help="only the message with this id")
    parser.add_argument("--reason", metavar="TEXT", help="only where the reason contains TEXT")
    parser.add_argument("--limit", type=values.positive, default=100, metavar="N")


async def run_list(arguments: Namespace, output: Output) -> int:
    """The dead letters of one subscription; without one, where there are any."""
    if arguments.topic is not None and arguments.subscription is not None:
        return await _list_messages(arguments, output)
    if arguments.id is not None or arguments.reason is not None:
        raise BadUsage("name TOPIC and SUBSCRIPTION to look for dead letters")
    async with opened(arguments) as client:
        topics = await client.topics()
    rows = [_place(topic) for topic in topics if topic["policy"].get("dead_of")]
    rows = [row for row in rows if row["topic"] == (arguments.topic or row["topic"])]
    if output.is_json:
        output.document(rows)
    elif all(row["messages"] == 0 for row in rows):  # None: the broker does not count
        output.notice("there are no dead letters")
    else:
        output.table(
            ["TOPIC", "SUBSCRIPTION", ">MESSAGES", ">BYTES"],
            [
                [row["topic"], row["subscription"], number(row["messages"]), size(row["bytes"])]
                for row in rows
            ],
        )
    return 0


def _place(topic: dict[str, Any]) -> dict[str, Any]:
    source, _, subscription = topic["policy"]["dead_of"].partition("\n")
    return {
        "topic": source,
        "subscription": subscription,
        "dead_topic": topic["topic"],
        "messages": topic["messages"],
        "bytes": topic["bytes"],
    }


async def _list_messages(arguments: Namespace, output: Output) -> int:
    async with opened(arguments) as client:
        found = await _letters(client, arguments)
    if output.is_json:
        for letter in found:
            output.row({**message.to_json(letter), **story(letter)})
        return 0
    if not found:
        output.notice("there are no such dead letters")
        return 0
    is_many = is_pattern(arguments.topic)
    output.table(
        [*(["TOPIC"] * is_many), "POSITION", "DIED", ">ATTEMPTS", "WHY", "ID", "REASON", "BODY"],
        [
            [
                *([story(letter).get("topic", "–")] * is_many),
                letter.position,
                moment(int(told["at"]) / 1000) if (told := story(letter)).get("at") else "–",
                told.get("attempts", "–"),
                told.get("why", "–"),
                letter.id,
                told.get("reason", ""),
                message.shortened(letter.body),
            ]
            for letter in found
        ],
    )
    return 0


async def _letters(client: Any, arguments: Namespace) -> list[Any]:
    found: list[Any] = []
    for topic in await places(client, arguments.topic, arguments.subscription):
        names = (topic, arguments.subscription)
        if not await client.dead_letters(*names, limit=1):
            continue
        async for letter in held(client, dead_topic(*names)):
            is_meant = arguments.id is None or letter.id == arguments.id
            if is_meant and (arguments.reason or "") in story(letter).get("reason", ""):
                found.append(letter)
            if len(found) >= arguments.limit:
                return found
    return found


def story(letter: Any) -> dict[str, str]:
    """What the headers of a dead letter tell: why, reason, attempts, at, consumer, offset."""
    headers = letter.headers or {}
    return {
        name.removeprefix(MARK): value for name, value in headers.items() if name.startswith(MARK)
    }


# -- redrive and purge -----------------------------------------------------------------------------


def add_redrive(parser: ArgumentParser) -> None:
    """Adds the arguments of `redrive`."""
    _add_choice(parser)
    parser.add_argument("--rate", type=values.rate, metavar="R", help="at most R messages a second")
    parser.add_argument("--dry-run", action="store_true", help="only say how many it would be")


async def run_redrive(arguments: Namespace, output: Output) -> int:
    """Sends dead letters back to the subscription they failed in."""
    async with opened(arguments) as client:
        count = await client.redrive(
            arguments.topic,
            arguments.subscription,
            **_choice(arguments),
            rate=arguments.rate,
            dry_run=arguments.dry_run,
        )
    _tell(output, arguments, "redriven", count)
    return 0


def add_purge(parser: ArgumentParser) -> None:
    """Adds the arguments of `purge`."""
    _add_choice(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say how many it would be")
    add_yes(parser)


async def run_purge(arguments: Namespace, output: Output) -> int:
    """Removes dead letters for good."""
    async with opened(arguments) as client:
        names = (arguments.topic, arguments.subscription)
        count = await client.purge_dead(*names, **_choice(arguments), dry_run=True)
        if not arguments.dry_run and count:
            if not agreed(arguments, output, f"remove {plural(count, 'dead letter')} for good?"):
                output.notice("nothing was removed")
                return 1
            count = await client.purge_dead(*names, **_choice(arguments), dry_run=False)
    _tell(output, arguments, "removed", count)
    return 0


def _tell(output: Output, arguments: Namespace, done: str, count: int) -> None:
    if output.is_json:
        output.document({done: count, "dry_run": arguments.dry_run})
    else:
        would = "would be " if arguments.dry_run else ""
        output.notice(f"{plural(count, 'dead letter')} {would}{done}")


GROUP = Group(
    "dead",
    "list, redrive and purge dead letters",
    (
        Command(
            "list",
            "dead letters of a subscription, or where there are any",
            "dead list orders billing --reason timeout",
            add_list,
            run_list,
        ),
        Command(
            "redrive",
            "send dead letters back to the subscription they failed in",
            "dead redrive orders billing --reason timeout --rate 100 --dry-run",
            add_redrive,
            run_redrive,
        ),
        Command(
            "purge",
            "remove dead letters for good",
            "dead purge orders billing --id order-17 --yes",
            add_purge,
            run_purge,
        ),
    ),
)
