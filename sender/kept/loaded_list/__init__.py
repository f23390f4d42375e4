"""The list of what is loaded, its state, and the logs that it is made of."""
