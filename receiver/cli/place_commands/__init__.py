"""Commands about tables, tablets and the nodes that hold them."""
