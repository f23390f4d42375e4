"""The tree of files in the store, as tables that DuckDB or Spark read by themselves (docs/tree.md).

Made of the engine's log and rows, for others: nothing of tsferry reads it to decide anything.
"""
