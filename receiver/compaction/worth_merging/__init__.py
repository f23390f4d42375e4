"""What is worth merging, and when: units of files, windows of time, their order."""
