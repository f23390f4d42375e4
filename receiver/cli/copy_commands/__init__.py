"""Commands about copies: backups, the object store, restores, and checks of both."""
