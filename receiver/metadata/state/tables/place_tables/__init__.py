"""Tables of where content lies: nodes, tablets, placements, slots of caches."""
