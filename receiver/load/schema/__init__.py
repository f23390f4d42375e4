"""What files and foreign logs say of the schema, as operations of a commit."""
