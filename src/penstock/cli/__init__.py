"""The `penstock` command: one module per command, put together in main.py."""
