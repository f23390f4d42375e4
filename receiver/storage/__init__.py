"""Loaded files in an object store, and the data directories as a cache before it.

`objects` says what a store is to tsferry; `directory`, `s3` and `cloud` are the stores there are,
`opening` finds the one that a URL means, `store_check` tries every permission that is needed.
"""
