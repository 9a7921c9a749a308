"""`penstock bridge`: copies a topic from one broker to another, and goes on where it stopped."""

import asyncio
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli import values
from penstock.cli.command import Command
from penstock.cli.connection import check_exists
from penstock.cli.output import Output, number, plural, size
from penstock.cli.parser import nearest
from penstock.cli.progress import Progress
from penstock.vocabulary.errors import UnknownTopic

if TYPE_CHECKING:
    from penstock.client.bridging import Bridged, Verified, Wanted
    from penstock.client.bridging.sources import Ending


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("source", metavar="FROM", help="URL of the broker to copy from")
    parser.add_argument("target", metavar="TO", help="URL of the broker to copy to")
    parser.add_argument("--topic", metavar="TOPIC", required=True, help="topic to copy")
    parser.add_argument("--to-topic", metavar="TOPIC", help="its name there (default: the same)")
    parser.add_argument(
        "--subscription",
        metavar="NAME",
        help="name under which the source keeps how far this got (default: made from the target)",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on at the end, until Ctrl-C or TERM"
    )
    parser.add_argument(
        "--batch", type=values.positive, default=1000, metavar="N", help="messages at a time"
    )
    parser.add_argument(
        "--consume",
        action="store_true",
        help="take messages from a shared subscription although the source has readers",
    )
    parser.add_argument(
        "--idle",
        type=values.seconds,
        default=2.0,
        metavar="S",
        help="from a subscription: silence that counts as the end (default: 2)",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=("priority", "delay", "expiry"),
        default=[],
        help="leave out what the target cannot keep; may be given more than once",
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare afterwards what source and target hold"
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Copies, and says what was copied and how safe that is."""
    from penstock.client.bridging import Wanted, bridge
    from penstock.client.bridging.sources import Ending
    from penstock.client.signals import stopping_on_signals

    check_exists(arguments.source)
    wanted = Wanted(
        topic=arguments.topic, to_topic=arguments.to_topic, subscription=arguments.subscription,
        follow=arguments.follow, batch=arguments.batch, consume=arguments.consume,
        idle_s=arguments.idle, without=tuple(arguments.without), verify=arguments.verify,
    )  # fmt: skip
    ending = Ending(follows=wanted.follow)
    loop = asyncio.get_running_loop()
    with (
        Progress(output, f"copying {wanted.topic}") as progress,
        stopping_on_signals(lambda: loop.call_soon_threadsafe(ending.stop)),
    ):
        try:
            found = await bridge(
                arguments.source, arguments.target, wanted=wanted, ending=ending,
                told=lambda so_far: progress.set(so_far.copied + so_far.known),
            )  # fmt: skip
        except UnknownTopic as error:
            raise await _with_suggestion(arguments, wanted, error) from error
    return _show(found, wanted, ending, output)


async def _with_suggestion(
    arguments: Namespace, wanted: "Wanted", error: UnknownTopic
) -> UnknownTopic:
    import penstock

    async with penstock.connect(arguments.source) as client:
        known = [row["topic"] for row in await client.topics()]
    close = nearest(wanted.topic, known) if wanted.topic not in known else []
    text = str(error).partition(";")[0]
    return UnknownTopic(f"{text}; did you mean {close[0]!r}?") if close else error


def _show(found: "Bridged", wanted: "Wanted", ending: "Ending", output: Output) -> int:
    verified = found.verified
    if output.is_json:
        document: dict[str, Any] = msgspec.to_builtins(found)
        output.document({**document, "stopped": ending.was_told()})
    else:
        rate = found.copied / found.seconds if found.seconds else 0.0
        output.say(
            f"{plural(found.copied, 'message')} ({size(found.bytes)}) copied from "
            f"{found.topic!r} of {found.source} to {found.to_topic!r} of {found.target}"
            + (f"; {number(found.known)} were there already" if found.known else "")
        )
        output.say(f"guarantee: {found.guarantee}")
        output.notice(f"{found.seconds:.1f} s, {number(round(rate))} messages/s")
        output.notice(f"how far it got is kept under {found.subscription!r}")
        if verified is not None:
            _show_verified(verified, wanted, output)
    return 0 if verified is None or verified.is_equal else 1


def _show_verified(verified: "Verified", wanted: "Wanted", output: Output) -> None:
    others = f"; {plural(verified.others, 'other message')} in the target" * bool(verified.others)
    compared = plural(verified.compared, "message")
    if verified.is_equal and not verified.compared:
        output.say("nothing to compare: the source holds no message any more")
    elif verified.is_equal:
        output.say(f"equal: {compared}, digest {verified.source_digest}{others}")
    else:
        output.say(
            f"NOT equal: of {compared}, {verified.missing} missing, {verified.changed} changed, "
            f"{verified.repeated} repeated, {verified.misplaced} out of order{others}"
        )
    difference = verified.difference
    if difference is not None:
        fields = f": {', '.join(difference.fields)}" if difference.fields else ""
        output.say(
            f"first difference: message {difference.id!r} at {difference.source} of "
            f"{wanted.topic!r} is {_WORDS[difference.kind]}{fields}"
        )
    output.notice(f"compared: {', '.join(verified.compares)}; order of each key")


_WORDS = {
    "missing": "missing",
    "changed": "changed",
    "repeated": "there more than once",
    "order": "not in its place",
}

COMMAND = Command(
    "bridge",
    "copy a topic from one broker to another; goes on where it stopped",
    "bridge file:./edge penstock://127.0.0.1:8001 --topic readings\n"
    "bridge nats://127.0.0.1 file:./landing --topic readings --follow\n"
    "bridge file:./a redis://127.0.0.1 --topic orders --to-topic orders.copy --verify",
    add,
    run,
    details="Exactly once into a broker with transactions, at least once elsewhere; the command\n"
    "says which. Started again after any stop, it goes on where it was. Key, headers, id, body,\n"
    "priority and times stay what they are.",
)
