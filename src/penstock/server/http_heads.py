"""Request heads that came before: the same bytes mean the same, so they are read once.

A client repeats its heads; often only the body changes. What a head said is kept by its bytes, for
all connections of a listener, and a request that begins with a known head and is there whole goes
past the parser. Only heads that leave nothing to the connection are kept: a known length, no
`expect`, no upgrade, and a connection that is kept.
"""

from typing import TYPE_CHECKING, Any, Final

from penstock.vocabulary.limits import KIB

if TYPE_CHECKING:
    from penstock.server.http_exchange import Exchange

HEADS_MAX: Final = 1_024
"""Heads that are kept; one more, and all are forgotten."""
HEAD_BYTES_MAX: Final = 1 * KIB
END: Final = b"\r\n\r\n"
UNSAFE: Final = frozenset({"expect", "upgrade", "transfer-encoding", "origin", "authorization"})
"""Headers whose heads are always parsed; those about who may what, since settings may change."""


class Known:
    """What a head said: the request that came with it first, and how long its body is."""

    __slots__ = ("first", "length", "message")

    def __init__(self, first: "Exchange", length: int) -> None:
        self.first = first
        self.length = length
        self.message: tuple[Any, ...] | None = None
        """What a message published under this head has besides its body."""


class Heads:
    """The known heads of one listener."""

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes, at: int) -> tuple[Known, int] | None:
        """The known head at this place and where its body begins, when the body is there whole."""
        found = data.find(END, at, at + HEAD_BYTES_MAX)
        if found < 0:
            return None
        end = found + len(END)
        known = self._known.get(data[at:end])
        if known is None or end + known.length > len(data):
            return None
        return known, end

    def learn(self, data: bytes, exchange: "Exchange") -> None:
        """Keeps the head of the request these bytes begin with, unless it is special."""
        found = data.find(END, 0, HEAD_BYTES_MAX)
        headers = exchange.headers
        is_special = exchange.is_old or exchange.is_close or not UNSAFE.isdisjoint(headers)
        if found < 0 or is_special:
            return
        head = data[: found + len(END)]
        length = int(headers.get("content-length", "0"))
        # A line may end without a return; then the first empty line may be one of the body.
        is_plain = head.count(b"\n") == head.count(b"\r\n")
        if not is_plain or data[len(head) : len(head) + length] != exchange.body:
            return
        if len(self._known) >= HEADS_MAX:
            self._known.clear()
        self._known[head] = Known(exchange.model(), length)
