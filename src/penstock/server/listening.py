"""What every listener of a server has in common: frames, lines and HTTP are three of them."""

from typing import Protocol


class Listener(Protocol):
    """One address a server listens on. All calls are made on the server's loop."""

    @property
    def name(self) -> str:
        """What is spoken there: `frames`, `lines` or `http`."""
        ...

    @property
    def address(self) -> str:
        """Where it really listens, `host:port` or a path; port 0 has become a number."""
        ...

    async def start(self) -> None:
        """Listens from now on. Raises OSError when the address cannot be had."""
        ...

    def drain(self) -> None:
        """Takes nothing new and tells clients, in their own words, to finish.

        What they hold can be settled until `stop`.
        """
        ...

    async def stop(self) -> None:
        """Ends every connection. Doing so twice is harmless."""
        ...
