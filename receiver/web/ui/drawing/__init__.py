"""How pages are drawn: templates, texts, and the small charts."""
