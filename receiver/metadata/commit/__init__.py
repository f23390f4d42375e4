"""The one way in: rules, guards, and the commit of many at once."""
