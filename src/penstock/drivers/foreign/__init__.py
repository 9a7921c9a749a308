"""One client over other people's brokers: everything they have in common, and the port they fill.

A broker technology is one module beside this package that implements `carrier.Carrier`. All else
is here, once: leases, attempts, back-off, dead letters, redrive, credit, retries, readers.
"""
