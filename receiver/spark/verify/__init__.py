"""The verification: the command, the job, what is proved of a file, and verdicts on their way."""
