"""What a task changes, decided from committed state and verified files."""
