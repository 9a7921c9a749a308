"""The running broker: decide, make durable, apply, then act on the effects."""
