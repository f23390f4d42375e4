"""Which nodes a tablet is placed on, and when that runs."""
