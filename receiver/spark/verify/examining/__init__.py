"""What a verification looks for in files, one by one and against each other."""
