"""A storage node: a process with disks and no engine, which a master tells what to hold.

It says now and then that it lives and what it has; who it is, how often it has started and which
master it has heard stand on its own disk.

Room: `node_web` what it answers over HTTP.
"""
