"""What operators may see and change: each subject is decided in one file.

`web` routes the calls, `cli` shows the answers, and both, like the delivery of verdicts, reach a
running server through `client`. Nothing here knows of HTTP routes or of terminals; it stands on
`receiver.transfer` and below `receiver.node`.

`views` has what calls take and answer, and is below all else. Loads at the centre (`centre`,
`adopting`) are held by `directories`, which is what the rooms of the subjects above work on:
`places`, `namespace`, `stored`, `asked_work` and, above these, `edges`; `status` asks all of them.
"""
