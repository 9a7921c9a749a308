"""The socket in a store's folder."""

SOCKET = "socket"
