"""Durable messaging for Python, from the socket to the table."""
