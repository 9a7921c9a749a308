"""The remote driver: a broker at the other end of a connection, `penstock://host:8001`."""

from penstock.drivers.remote.address import Address, TcpAddress, UnixAddress, parse
from penstock.drivers.remote.opening import open_address, open_remote

__all__ = ["Address", "TcpAddress", "UnixAddress", "open_address", "open_remote", "parse"]
