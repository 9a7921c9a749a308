"""The port is small, and what a driver can do is data."""

import ast
import inspect
import pickle
from pathlib import Path

import penstock
from penstock.drivers.embedded import FILE, MEMORY, EmbeddedAttachment, EmbeddedDriver
from penstock.drivers.foreign.driver import ForeignDriver
from penstock.drivers.port import (
    Attachment,
    Capabilities,
    Driver,
    EpochDriver,
    PatternDriver,
    ReconnectingDriver,
    UnitDriver,
)
from penstock.drivers.remote.driver import RemoteDriver
from penstock.vocabulary.message import Durability


def _methods(port: type) -> set[str]:
    return {
        name
        for name, value in vars(port).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def test_the_driver_port_has_at_most_eight_methods() -> None:
    assert len(_methods(Driver)) <= 8
    assert len(_methods(Attachment)) <= 8


def test_the_embedded_driver_has_every_method_of_the_port() -> None:
    assert _methods(Attachment) <= _methods(EmbeddedAttachment)
    assert _methods(PatternDriver) <= _methods(EmbeddedDriver)
    assert _methods(UnitDriver) <= _methods(EmbeddedDriver)
    assert _methods(Driver) - {"partitions"} <= _methods(EmbeddedDriver)


def test_a_driver_has_nothing_that_the_port_does_not_declare() -> None:
    """What only some have is declared too, each in a protocol of its own."""
    declared = set[str]().union(
        *map(_names, (Driver, PatternDriver, UnitDriver, EpochDriver, ReconnectingDriver))
    )
    asked = set()
    for path in (Path(penstock.__file__).parent / "client").rglob("*.py"):
        if path.name == "broker.py":
            continue  # a broker in this process, whose driver is the embedded one by its type
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and _is_driver(node.value):
                asked.add(node.attr)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                assert not _is_driver(node.args[0]), path
    assert {"publish", "attach", "ask"} <= asked
    assert asked <= declared
    assert issubclass(EmbeddedDriver, EpochDriver)
    assert not issubclass(RemoteDriver, EpochDriver)
    assert issubclass(RemoteDriver, ReconnectingDriver)
    assert not issubclass(ForeignDriver, ReconnectingDriver)
    assert not issubclass(EmbeddedDriver, ReconnectingDriver)


def _names(port: type) -> set[str]:
    made = {name for name in vars(port) if not name.startswith("_")}
    return made | set(port.__annotations__)


def _is_driver(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in {"driver", "_driver"}


def test_capabilities_are_plain_data() -> None:
    assert pickle.loads(pickle.dumps(FILE)) == FILE
    assert FILE.durability is Durability.SYNCED
    assert MEMORY.durability is Durability.MEMORY
    assert FILE.qos == MEMORY.qos == (0, 1, 2)
    assert FILE.has_transactions
    assert MEMORY.has_transactions


def test_a_driver_promises_nothing_it_does_not_say() -> None:
    can = Capabilities(scheme="x", durability=Durability.MEMORY)
    assert not any((can.has_priority, can.has_delay, can.has_expiry, can.has_transactions))
