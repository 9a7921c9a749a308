"""The port is small, and what a driver can do is data."""

import inspect
import pickle

from penstock.drivers.embedded import FILE, MEMORY, EmbeddedAttachment, EmbeddedDriver
from penstock.drivers.port import Attachment, Capabilities, Driver, PatternDriver, UnitDriver
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
