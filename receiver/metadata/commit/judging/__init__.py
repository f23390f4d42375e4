"""Whether a request may be committed: a module of rules for each subject."""
