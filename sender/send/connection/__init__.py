"""A connection to a receiver: addresses, TLS, pace, and what is tried again."""
