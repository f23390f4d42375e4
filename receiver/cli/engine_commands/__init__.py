"""Commands about what the metadata engine holds: its log, its tree, its times to live."""
