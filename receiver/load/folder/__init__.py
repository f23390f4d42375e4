"""A sender's folder beneath `sync-receiver`: its task, its staged files, its manifests."""
