"""The engine's log in the store: shipped, removed, and an engine made of it again."""
