"""Tables of senders: tasks, owners, and what was lost, released or let go for them."""
