"""Whether schema operations may be committed: the draft that they are tried on."""
