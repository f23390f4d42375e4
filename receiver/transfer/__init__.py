"""Taking files in: checks, tasks, plans, uploads, and what an operator may ask and change."""
