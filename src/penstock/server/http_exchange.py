"""One request and its answer. Handlers see this; only the connection sees bytes."""

from asyncio import Task
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.server.http_pages import HTML, POLICY, problem_page
from penstock.wire.rest import JSON, PROBLEM, REASONS, Refused, problem
from penstock.wire.rest_path import split_target

if TYPE_CHECKING:
    from penstock.server.http_connection import Connection
    from penstock.server.http_heads import Known

LINES: Final = {
    status: f"HTTP/1.1 {status} {reason}\r\n".encode() for status, reason in REASONS.items()
}
OK: Final = 200
_OK_LINE: Final = LINES[OK]
_JSON_HEAD: Final = b"content-type: application/json\r\ncontent-length: "
WITHOUT_BODY: Final = frozenset({204, 304})
_OF_HEAD: Final = (
    "method", "path", "query", "names", "headers", "route", "handler", "limit", "is_head", "origin",
)  # fmt: skip


class Exchange:
    """A request as far as it is known, and the place its answer has among those of others.

    The answers of one connection go out in the order of their requests, whenever they are ready.
    """

    __slots__ = (
        "body", "connection", "data", "handler", "headers", "is_close", "is_head", "is_old",
        "is_patient", "is_streaming", "known", "limit", "method", "names", "on_lost", "origin",
        "path", "query", "route", "task",
    )  # fmt: skip

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.method = ""
        self.path: list[str] = []
        """Decoded segments."""
        self.query = ""
        self.headers: dict[str, str] = {}
        """By name in lower case; values as Latin-1."""
        self.names: dict[str, str] = {}
        """What the path says about the topic, subscription and so on."""
        self.body: bytes = b""
        self.route: Any = None
        self.handler: Callable[[Exchange], Any] | None = None
        self.limit = 0
        """Most bytes the body may have."""
        self.is_head = False
        self.is_old = False
        """HTTP/1.0: no chunks, and closed unless asked otherwise."""
        self.is_close = False
        """The connection ends with this answer."""
        self.is_patient = False
        """It may take long on purpose: without its client it is pointless."""
        self.is_streaming = False
        self.data: bytes | None = None
        """The answer, once it is known."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the answer could not be sent."""
        self.origin = ""
        """The other site whose page asks, and may."""
        self.task: Task[None] | None = None
        self.known: Known | None = None
        """Its head, when one of the same bytes came before."""

    @classmethod
    def again(cls, connection: "Connection", known: "Known", body: bytes) -> "Exchange":
        """One more request with a known head."""
        new, first = cls(connection), known.first
        new.known, new.body = known, body
        new.method, new.path, new.query, new.names = (
            first.method, first.path, first.query, first.names,
        )  # fmt: skip
        new.headers, new.route, new.handler = first.headers, first.route, first.handler
        new.limit, new.is_head, new.origin = first.limit, first.is_head, first.origin
        return new

    def model(self) -> "Exchange":
        """What its head said, without the rest."""
        from_head = Exchange.__new__(Exchange)
        for name in _OF_HEAD:
            setattr(from_head, name, getattr(self, name))
        return from_head

    def aim(self, target: bytes) -> None:
        """Notes the address. Raises Refused."""
        self.path, self.query = split_target(target)

    @property
    def content_type(self) -> str:
        """What the body is, without parameters; empty when it is not said."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def accepts(self, content_type: str) -> bool:
        """True when the client asks for this very content type."""
        return content_type in self.headers.get("accept", "")

    def reply(
        self, status: int, body: bytes = b"", content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Answers; the second answer to one request is a mistake of ours."""
        assert self.data is None, "a request is answered once"
        listener = self.connection.listener
        if listener.is_draining and self.connection.ends_with(self):
            self.is_close = True
        is_special = headers or self.is_close or self.is_old or self.is_head or self.origin
        if status == OK and content_type is JSON and not is_special:
            self.data = b"%b%b%b%d\r\n\r\n%b" % (
                _OK_LINE, listener.date(), _JSON_HEAD, len(body), body,
            )  # fmt: skip
            self.connection.answered()
            return
        head = [LINES[status], listener.date()]
        if status in WITHOUT_BODY:
            body = b""
        elif content_type is JSON:
            head.append(b"%b%d\r\n" % (_JSON_HEAD, len(body)))
        else:
            head.append(b"content-type: %b\r\n" % content_type.encode())
            head.append(b"content-length: %d\r\n" % len(body))
        if headers:
            head.extend(line(name, value) for name, value in headers.items())
        if self.origin:
            head.append(_welcome(self.origin))
        if self.is_close:
            head.append(b"connection: close\r\n")
        elif self.is_old:
            head.append(b"connection: keep-alive\r\n")
        head.append(b"\r\n")
        if not self.is_head:
            head.append(body)
        self.data = b"".join(head)
        self.connection.answered()

    def fail(self, error: Exception) -> None:
        """Answers with what went wrong."""
        status, body, headers = problem(error)
        if isinstance(error, Refused) and status in {400, 408, 413, 431, 501, 505}:
            self.is_close = self.is_close or error.code in CLOSING
        if self.method == "GET" and self.accepts("text/html"):
            self.reply(status, problem_page(body), HTML, {**headers, **POLICY})
        else:
            self.reply(status, body, PROBLEM, headers)

    def begin_stream(self, content_type: str, headers: Mapping[str, str]) -> None:
        """Begins an answer without an end that is known; it ends with the connection."""
        self.is_close = True
        self.is_streaming = True
        head = [LINES[200], self.connection.listener.date()]
        head.append(b"content-type: %b\r\n" % content_type.encode())
        head.extend(line(name, value) for name, value in headers.items())
        if self.origin:
            head.append(_welcome(self.origin))
        head.append(b"connection: close\r\n\r\n")
        self.data = b"".join(head)
        self.connection.flush()


CLOSING: Final = frozenset(
    {"bad-request", "request-timeout", "content-too-large", "headers-too-large",
     "version-not-supported"}
)  # fmt: skip
"""Refusals after which the bytes that follow cannot be trusted to be a request."""


def _welcome(origin: str) -> bytes:
    allowed = line("access-control-allow-origin", origin)
    return allowed + b"access-control-expose-headers: *\r\nvary: origin\r\n"


def line(name: str, value: str) -> bytes:
    """One header line; what could end it early is left out."""
    clean = value.replace("\r", " ").replace("\n", " ")
    return f"{name}: {clean}\r\n".encode("latin-1", "replace")
