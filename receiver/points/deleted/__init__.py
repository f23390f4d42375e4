"""What deletion files say: their entries, read of each release, put to rows."""
