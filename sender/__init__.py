"""The sender: finds closed TsFiles at the edge and ships them."""
