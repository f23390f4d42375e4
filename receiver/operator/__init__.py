"""What operators may see and change: each subject is decided in one file.

`web` routes the calls, `cli` shows the answers, and both, like the delivery of verdicts, reach a
running server through `client`. Nothing here knows of HTTP routes or of terminals; it stands on
`receiver.transfer` and below `receiver.node`.
"""
