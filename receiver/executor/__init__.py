"""Background tasks done on any machine: taken from a receiver, asked for and answered over HTTP.

A kind of work is one function, from a question to its answer (`work_kinds`). What it needs of files
it reads from the receiver; it changes nothing itself, there or here.
"""
