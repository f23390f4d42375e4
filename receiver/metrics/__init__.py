"""What a receiver tells a monitoring system; read from committed state, with no look at files.

It may ask all parts of a node; nothing of these knows it.
"""
