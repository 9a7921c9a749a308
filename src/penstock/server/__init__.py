"""Sockets: the broker on a network."""
