"""Copies of tablets at storage nodes, as their master sees to them: placed, followed, counted.

What is decided about a placement is committed before a node hears of it. What nodes have is known
by what they say, is lost with the process, and comes again by itself.

Rooms: `assigning` which nodes a tablet is placed on, `copies_there` what they have.
"""
