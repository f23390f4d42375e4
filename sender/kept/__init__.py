"""What this sender keeps on its disk: lists, logs, links, troubles, who it is.

Rooms: `loaded_list` what is loaded, `seen_looks` what looks have seen.
"""
