"""How errors look over HTTP: a status for every code, and problem details (RFC 9457) as the body.

`Refused` is what only HTTP knows: a wrong path, method, content type or size. Everything else is
an error of the catalogue, under the same code as in every other protocol.
"""

from typing import Any, Final

import msgspec

from penstock.vocabulary.errors import (
    PenstockError,
    ProtocolError,
    StorageError,
    Unavailable,
    UsageError,
)

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
NDJSON: Final = "application/x-ndjson"

REASONS: Final = {
    100: "Continue", 200: "OK", 201: "Created", 204: "No Content",
    400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required",
    413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type",
    417: "Expectation Failed", 422: "Unprocessable Content", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}  # fmt: skip

STATUSES: Final = {
    "error": 500,
    "too-large": 413,
    "unit-too-large": 413,
    "unknown-topic": 404,
    "unknown-subscription": 404,
    "topic-exists": 409,
    "topic-in-use": 409,
    "partitions-only-grow": 409,
    "subscription-conflict": 409,
    "subscription-in-use": 409,
    "position-not-held": 409,
    "reader-fenced": 409,
    "not-planned": 409,
    "already-settled": 409,
    "not-leased": 409,
    "ack-refused": 409,
    "publisher-fenced": 409,
    "publisher-forgotten": 409,
    "publish-failed": 503,
    "closed": 503,
    "disk-full": 507,
    "dead-letter-full": 507,
    "store-failed": 503,
    "record-damaged": 410,
    "unsupported": 422,
}
"""Codes whose status is not that of their family."""

FAMILIES: Final[tuple[tuple[type[PenstockError], int], ...]] = (
    (UsageError, 400),
    (ProtocolError, 400),
    (Unavailable, 503),
    (StorageError, 500),
    (PenstockError, 500),
)

TITLES: Final = {
    "bad-request": "The request does not follow HTTP.",
    "not-found": "There is nothing at this address.",
    "method-not-allowed": "This address does not know this method.",
    "unsupported-media-type": "The body has a content type this address does not take.",
    "content-too-large": "The body is over the limit of this address.",
    "headers-too-large": "The head of the request is over its limit.",
    "request-timeout": "The request came too slowly.",
    "origin-not-allowed": "A page of another site may not use this server.",
    "version-not-supported": "Only HTTP/1.0 and HTTP/1.1 are spoken here.",
    "expectation-failed": "Only the expectation 100-continue is known here.",
    "internal": "Something went wrong inside the server.",
    "not-ready": "The server is not ready.",
    "too-many-connections": "The server has as many connections as it takes.",
}
"""Codes of what only HTTP can refuse."""

REQUESTS: Final = {
    "use alter_topic to": "PATCH it to",
    "use alter_subscription to": "PATCH it to",
    "create it first, or subscribe with this name": "PUT it first, or GET …/subscriptions to see "
    "what there is",
    "create it first, or publish": "PUT it first, or publish",
}
"""What an error advises a program to call, and the request for it."""


class Refused(Exception):
    """A request that is refused before it means anything to the broker."""

    def __init__(self, status: int, code: str, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def status_of(error: PenstockError) -> int:
    """The status that answers an error."""
    found = STATUSES.get(error.code)
    if found is not None:
        return found
    return next(status for family, status in FAMILIES if isinstance(error, family))


def problem(error: Exception) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and further headers that tell of an error; what is unknown stays vague."""
    headers: dict[str, str] = {}
    if isinstance(error, Refused):
        status, code, text = error.status, error.code, error.text
        title, details = TITLES[code], {}
        headers.update(error.headers)
    elif isinstance(error, PenstockError):
        status, code, text = status_of(error), error.code, _in_http(error.text)
        title, details = (error.__doc__ or "").partition("\n")[0], error.details
        if error.retryable:
            headers["retry-after"] = "1"
    else:
        status, code, details = 500, "internal", {}
        title, text = TITLES[code], "the log of the server says more"
    body: dict[str, Any] = {
        "type": f"urn:penstock:problem:{code}",
        "title": title,
        "status": status,
        "detail": text,
        "code": code,
    }
    body.update({name: _plain(value) for name, value in details.items() if name not in body})
    return status, msgspec.json.encode(body), headers


def _in_http(text: str) -> str:
    """A text that names calls of the client, with what does the same here."""
    for call, request in REQUESTS.items():
        text = text.replace(call, request)
    return text


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except TypeError:
        return repr(value)[:256]
