"""The calls that the receiver answers, a module a subject, each beside its routes."""
