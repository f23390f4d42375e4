"""Copies of tablets at a storage node: kept on its disks, pulled from where they are, read by all.

A node knows nothing of the catalogue. What is here is told to it by the master (`copies_wire`), and
each copied file stands in a journal beside its bytes, with what a row of the catalogue needs.
"""
