"""What each kind of reading looks like, which of its values are right, and the row it becomes.

Pure functions on Arrow record batches: the in-process lane and the workers of a cluster call the
same ones and get the same bytes.
"""
