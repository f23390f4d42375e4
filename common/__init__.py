"""What sender and receiver both need, and nothing else.

Rooms: `durable` the door to the disk, `config`, `console` command lines and terminals, `formats` of
text, `wire` types of calls, `network`, `metering` counters and their port, `hooks`, `tsfile` tails.
"""

__version__ = "0.1.0"
