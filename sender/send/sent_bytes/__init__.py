"""The bytes of files, to a receiver or a storage node."""
