"""Hooks: events for a command and a webhook, queued durably, told at least once, in nobody's way.

What both ends need: the form of an event, the queue, the two ways out, and the thread between them.
Which events there are is known to `receiver.hooks` and `sender.hooks`.
"""
