"""Whether both ends list the same, and what is done where they do not."""
