"""Opens the broker a command was pointed at, and makes its errors say a little more."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.cli.options import Chosen, chosen
from penstock.cli.parser import nearest
from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import (
    InvalidArgument,
    NotAStore,
    PenstockError,
    StorageError,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)


@asynccontextmanager
async def opened(arguments: Namespace, *, creates: bool = False) -> AsyncIterator[Any]:
    """A client on the chosen broker. Only a command that `creates` may make a new store.

    Raises NotAStore when there is no store and the command would only look at it. What goes wrong
    with a broker that was not named by --url says who named it.
    """
    import penstock

    choice = chosen(arguments)
    try:
        if not creates:
            check_exists(choice.url)
        client = await penstock.connect(choice.url)
    except (InvalidArgument, StorageError, Unavailable, Unsupported) as error:
        raise named(error, choice) from error
    async with client:
        try:
            yield client
        except (UnknownTopic, UnknownSubscription) as error:
            raise await _with_suggestion(client, arguments, error) from error
        except Unavailable as error:
            raise named(error, choice) from error


def named(error: PenstockError, choice: Chosen) -> PenstockError:
    """The error with the context or setting that chose the broker."""
    if choice.source == "--url":
        return error
    who = choice.source if choice.context is None else f"context {choice.context!r}"
    return type(error)(f"{error.text} ({who}: {without_credentials(choice.url)})", **error.details)


def check_exists(url: str) -> None:
    """Raises NotAStore when a file: URL names a folder that is not there."""
    if not url.startswith("file:"):
        return
    from penstock.drivers.embedded import folder_of

    folder = folder_of(url)
    if not folder.exists():
        raise NotAStore(
            f"there is no store in {folder}: `penstock pub` creates one, --url names another"
        )


async def _with_suggestion(
    client: Any, arguments: Namespace, error: UnknownTopic | UnknownSubscription
) -> UnknownTopic | UnknownSubscription:
    topic = str(getattr(arguments, "topic", ""))
    if isinstance(error, UnknownTopic):
        close = nearest(topic, [row["topic"] for row in await client.topics()])
    else:
        known = [row["subscription"] for row in await client.subscriptions(topic)]
        close = nearest(str(getattr(arguments, "subscription", "")), known)
    if not close:
        return error
    text = str(error).partition(";")[0]
    guess = " or ".join(repr(name) for name in close)
    return type(error)(f"{text}; did you mean {guess}?", **error.details)
