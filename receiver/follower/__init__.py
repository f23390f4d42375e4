"""Copies of an engine that follow it, from its object store or its receiver, and never write there.

A copy is a directory beside nobody's data: it can be thrown away, and is made anew where it does
not go on. It is read by a node that answers questions (`read_node`), or by a job.
"""
