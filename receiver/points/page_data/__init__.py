"""Pages of a chunk: out of their compression, checked, summed, and decoded in kernels."""
