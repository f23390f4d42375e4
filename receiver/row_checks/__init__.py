"""Rules that rows have to pass before they are loaded at the centre: named, found, asked."""
