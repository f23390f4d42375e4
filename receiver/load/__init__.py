"""From verified files to committed ones: loading, recovery, reaping, checking."""
