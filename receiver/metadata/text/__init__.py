"""The schema in the text forms of Apache IoTDB, read and written."""
