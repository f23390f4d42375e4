"""`python -m receiver.spark.backlog`; the script that `spark-submit` is given."""

import sys

from common.console.cli import run
from receiver.spark.backlog.backlog_command import main

sys.exit(run(main, "tsferry-backlog", extra="spark"))
