"""One round with one receiver, and the looks that change nothing."""
