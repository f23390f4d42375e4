"""Tasks of senders: begun, planned, answered, ended."""
