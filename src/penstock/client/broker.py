"""A broker of one's own: opened, shared by any number of clients, closed at the end."""

from asyncio import get_running_loop
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.client.client import Client, check_options
from penstock.drivers.embedded import EmbeddedDriver, open_file
from penstock.vocabulary.errors import Closed, InvalidArgument


class Broker:
    """The store in a folder, open while this is: `async with Broker("data") as broker`.

    Opening a folder that this process has open already shares it. `auto_create_topics=False`: only
    `create_topic` creates topics, whoever asks; None leaves that as it is.
    """

    def __init__(
        self, folder: str | PathLike[str], *, auto_create_topics: bool | None = None
    ) -> None:
        if not fspath(folder):
            raise InvalidArgument("name the folder of the store, for example Broker('data')")
        self.folder = Path(folder).expanduser().resolve()
        self._auto_create_topics = auto_create_topics
        self._driver: EmbeddedDriver | None = None
        self._clients: list[Client] = []

    async def open(self) -> Self:
        """Opens the store, which is created when missing. Raises StorageError and its kinds."""
        if self._driver is None:
            self._driver = await open_file(self.folder, get_running_loop())
            if self._auto_create_topics is not None:
                self._driver.auto_create_topics(is_on=self._auto_create_topics)
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def client(self, **options: Any) -> Client:
        """An open client of this broker, on the running loop; options as for `connect`.

        Closing the broker closes it, if nobody did before.
        """
        if self._driver is None:
            raise Closed("this broker is not open: use 'async with Broker(folder) as broker'")
        check_options(options)
        driver = self._driver.again(get_running_loop())
        client = Client(f"file:{self.folder}", driver.itself, **options)
        client.attach_to(driver, get_running_loop())
        self._clients = [each for each in self._clients if not each.is_closed]
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Closes its clients, and the store when nobody else uses it."""
        driver, self._driver = self._driver, None
        clients, self._clients = self._clients, []
        for client in clients:
            await client.close()
        if driver is not None:
            await driver.close()
