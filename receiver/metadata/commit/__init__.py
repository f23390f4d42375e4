"""The one way in: rules, guards, and the commit of many at once.

Rooms: `judging` a module of rules for each subject, `series_rules` the draft of the schema,
`replaced` what commits do to merges.
"""
