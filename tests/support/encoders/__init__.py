"""Encoders of the TsFile format, one module a family: slow, plain, and not made from our decoders.

Each writes what the Java writer would, bit for bit, for lists of Python numbers or bytes.
"""
