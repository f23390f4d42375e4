"""The clock that timestamps go by: the machine's, as far as it can be believed.

Knows no state and no log: the engine hands in what it needs of them. It imports `model` alone.
"""
