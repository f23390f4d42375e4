"""Copies of loaded files and of the log in an object store, and a receiver made of them.

The lowest room is `stores`: `object_store` says what a store is to tsferry, `store_opening` finds
the one that a URL means, `store_check` tries every permission that is needed; botocore and obstore
are imported there, by `s3_store` and what is below it. `reading` and `tree` read and write
what lies in one; `uploading` and `log_copies` bring it there, `cache` brings it back, `objects`
puts right what is bad. `copying` is a running receiver's, and stands above all of them.
"""
