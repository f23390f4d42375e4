"""Tables, tablets and the tree of series, as an operator sees and changes them."""
