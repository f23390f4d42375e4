"""`free`: what is safely at the receiver is removed here."""
