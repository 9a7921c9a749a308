"""Opens the broker a command was pointed at, and makes its errors say a little more."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.cli.options import url_of
from penstock.cli.parser import nearest
from penstock.vocabulary.errors import NotAStore, UnknownSubscription, UnknownTopic


@asynccontextmanager
async def opened(arguments: Namespace, *, creates: bool = False) -> AsyncIterator[Any]:
    """A client on the chosen broker. Only a command that `creates` may make a new store.

    Raises NotAStore when there is no store and the command would only look at it.
    """
    import penstock

    url = url_of(arguments)
    if not creates:
        check_exists(url)
    async with penstock.connect(url) as client:
        try:
            yield client
        except (UnknownTopic, UnknownSubscription) as error:
            raise await _with_suggestion(client, arguments, error) from error


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
