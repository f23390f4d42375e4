"""Storage nodes as their master knows them: what they say, who they are, what they report.

A storage node is a process with disks and no engine (`receiver.storagenode`). The master is the
receiver whose engine says what is loaded. What is kept here of a node is soft: it is lost with the
process, and nodes tell it again; only that a node belongs to the engine, and which of its starts
was the last, is committed.
"""
