"""Bytes and commands: what travels between a client and a server, pure."""
