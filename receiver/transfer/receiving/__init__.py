"""Bytes that arrive: admitted, kept in part, taken in whole."""
