"""The daemon: a loop for each receiver, an eye on the directories, an ear for commands."""
