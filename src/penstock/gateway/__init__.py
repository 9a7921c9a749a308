"""The device API: readings come in over HTTP and are durable when the answer goes out."""
