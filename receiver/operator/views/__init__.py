"""What operators' calls answer with: one form for the wire, the commands and the page."""
