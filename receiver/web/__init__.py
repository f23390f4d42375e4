"""The web layer: the protocol of senders, the calls of operators, the page, and their server.

Rooms: `handlers` the calls, a module a subject, `ui` the page, `server` what listens.
"""
