"""Taking files in: checks, tasks, plans, uploads, and pages of what is committed."""
