"""What a storage node answers over HTTP."""
