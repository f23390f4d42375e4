"""One round with one receiver, and the looks that change nothing.

Rooms: `compared_lists` whether both ends list the same, `freed_files` what `free` removes,
`round_words` what it came to.
"""
