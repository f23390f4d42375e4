"""The metadata engine: the one place where the receiver's knowledge is written.

`Engine.commit` makes operations (`records`) durable in a framed log (`log`) and visible in tables
in memory (`state`), as a whole or not at all; `Engine.reading` gives a consistent look at them.
"""
