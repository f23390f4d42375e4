"""What a round comes to, for people and for machines."""
