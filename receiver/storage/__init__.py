"""Copies of loaded files and of the log in an object store, and a receiver made of them.

`object_store` says what a store is to tsferry; there are `directory_store` and `s3_store`.
`store_opening` finds the one that a URL means, `store_check` tries every permission that is needed.
botocore and obstore are imported by `s3_store` and what is below it alone.
"""
