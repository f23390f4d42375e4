"""The receiver's web layer: the protocol of senders, the calls of operators, and their server."""
