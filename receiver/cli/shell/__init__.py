"""The SQL shell: where statements come from, how they are read and how answers are drawn."""
