"""The nouns every room shares. This room imports no other room."""
