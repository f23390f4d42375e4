"""Spark over what is loaded: the job that proves it, and a data source that reads it."""
