"""Pages of the manual that are made of the code: commands, configuration, errors, HTTP calls."""
