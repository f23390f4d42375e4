"""Work behind the scenes that an operator asks for: tasks and merges."""
