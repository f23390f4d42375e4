"""Commands about what edges deliver: senders, files, owners, and what was refused or lost."""
