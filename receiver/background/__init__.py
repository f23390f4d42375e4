"""Background work: who adds it, who does it here or elsewhere, and in which process."""
