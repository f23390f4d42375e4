"""What this sender keeps on its disk: lists, logs, links, troubles, who it is."""
