"""By this module Spark finds the data source ``tsfile`` without a line of set-up.

PySpark looks for top-level modules whose names begin with ``pyspark_`` and takes their
``DefaultSource``. The wheel installs this file beside the packages, under that name.
"""

from receiver.spark.source import TsFileSource as DefaultSource

__all__ = ["DefaultSource"]
