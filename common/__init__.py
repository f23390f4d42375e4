"""What sender and receiver both need, and nothing else."""

__version__ = "0.1.0"
