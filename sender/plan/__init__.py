"""What must be done, decided: pure functions from what is here and what is listed."""
