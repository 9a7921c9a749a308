"""Who carries a message: the port, its capabilities, and one driver for each technology."""

from penstock.drivers.choose import check_url, open_driver
from penstock.drivers.port import Answer, Attachment, Capabilities, Driver, Sink

__all__ = [
    "Answer",
    "Attachment",
    "Capabilities",
    "Driver",
    "Sink",
    "check_url",
    "open_driver",
]
