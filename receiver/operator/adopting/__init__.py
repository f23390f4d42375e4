"""The files of an old receiver, or of a copied tree, made those of the senders they came from."""
