"""Taking files in: checks, tasks, plans, uploads, and pages of what is committed.

Rooms: `begun` tasks from the check to their end, `receiving` their bytes, `said_lists` what senders
list.
"""
