"""A cluster as executors of a receiver's background tasks: each of its workers takes what waits.

It knows `receiver.executor`, which does the tasks, and how Spark is started; nothing knows it.
"""
