"""TsFiles written: points in, files of versions 3 and 4 out that any reader of the format takes."""
