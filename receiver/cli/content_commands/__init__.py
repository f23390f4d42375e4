"""Commands about content at the centre itself: loading, taking over, merging and giving out."""
