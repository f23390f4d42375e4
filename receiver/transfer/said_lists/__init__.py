"""Lists that senders give of their files, in pages, and what follows of them."""
