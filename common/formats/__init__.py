"""Formats of text that both ends, or two releases, read and write: logs, trees and schema items."""
