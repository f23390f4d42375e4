"""Object stores as tsferry needs them: S3, directories, and whose a prefix of one is."""
