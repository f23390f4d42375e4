"""What can be done from a page: said first, in full, and done when that was confirmed."""
