"""What of which files is read: options, selection, slices."""
