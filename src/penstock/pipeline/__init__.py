"""Validate, analyse, transform, store: readings from a topic into tables, each exactly once."""
