"""Where the results go: Parquet for machines, JSON for scripts, a page and lines for people."""

from receiver.spark.report.directory import write
from receiver.spark.report.summary import Delivery, Summary, summarise
from receiver.spark.report.summary_text import text

__all__ = ["Delivery", "Summary", "summarise", "text", "write"]
