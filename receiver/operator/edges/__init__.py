"""Edges as an operator sees and keeps them: senders, their tokens and owners, and who is late."""
