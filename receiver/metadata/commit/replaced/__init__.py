"""What a commit does to merges: they become final, are dissolved, or give files back."""
