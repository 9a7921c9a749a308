"""Durable messaging for Python: a confirmed message survives a crash.

Names are imported when they are first used, so that `import penstock` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock import testing
    from penstock.client.application import (
        publish,
        receive,
        register_message,
        stream,
        use_capabilities,
    )
    from penstock.client.blocking import BlockingClient, connect_blocking
    from penstock.client.bridging import bridge
    from penstock.client.broker import Broker
    from penstock.client.client import Client, connect
    from penstock.client.events import Event
    from penstock.client.received import ReceivedMessage
    from penstock.vocabulary import errors
    from penstock.vocabulary.errors import PenstockError
    from penstock.vocabulary.message import (
        Ack,
        Durability,
        Kind,
        Message,
        Nack,
        Receipt,
        Reject,
    )
    from penstock.vocabulary.policy import Retry

    __version__: str

_PLACES: Final = {
    "connect": "penstock.client.client",
    "connect_blocking": "penstock.client.blocking",
    "bridge": "penstock.client.bridging",
    "Broker": "penstock.client.broker",
    "BlockingClient": "penstock.client.blocking",
    "Client": "penstock.client.client",
    "ReceivedMessage": "penstock.client.received",
    "Ack": "penstock.vocabulary.message",
    "Durability": "penstock.vocabulary.message",
    "Kind": "penstock.vocabulary.message",
    "Message": "penstock.vocabulary.message",
    "Nack": "penstock.vocabulary.message",
    "Receipt": "penstock.vocabulary.message",
    "Reject": "penstock.vocabulary.message",
    "Retry": "penstock.vocabulary.policy",
    "PenstockError": "penstock.vocabulary.errors",
    "Event": "penstock.client.events",
    "publish": "penstock.client.application",
    "receive": "penstock.client.application",
    "register_message": "penstock.client.application",
    "stream": "penstock.client.application",
    "use_capabilities": "penstock.client.application",
}
_MODULES: Final = {"errors": "penstock.vocabulary.errors", "testing": "penstock.testing"}

__all__ = [
    "Ack",
    "BlockingClient",
    "Broker",
    "Client",
    "Durability",
    "Event",
    "Kind",
    "Message",
    "Nack",
    "PenstockError",
    "Receipt",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "__version__",
    "bridge",
    "connect",
    "connect_blocking",
    "errors",
    "publish",
    "receive",
    "register_message",
    "stream",
    "testing",
    "use_capabilities",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name in _PLACES:
        value = getattr(import_module(_PLACES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("penstock"))
    except metadata.PackageNotFoundError:
        return "0.0.0"  # run from a source tree that is not installed


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
