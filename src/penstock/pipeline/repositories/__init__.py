"""Where processed readings are stored: one port, `write(rows, write_id)`, and who implements it."""
