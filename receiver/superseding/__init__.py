"""Proofs that a retired file gives nothing that other files do not give: it is superseded.

`prover` decides what is looked at and commits what was found; the files are read and decoded by a
process beside the server (`worker`), which knows nothing but what it is asked. Nothing is kept on
the disk but the commits: what was found not to be proved is remembered in memory, and is looked at
again when something comes that touches it, and after a start.
"""
