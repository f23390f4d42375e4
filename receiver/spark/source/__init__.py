"""`spark.read.format("tsfile")`: TsFiles as a Spark data source, from paths or from a receiver.

Where the package is installed, Spark finds the source by itself (module ``pyspark_tsfile``).
`register` does it by hand. docs/spark.md is for users.

Nothing here imports numba or pyarrow before it is needed: Spark loads the class in a small process
of its own, whatever source somebody asks for.

Rooms: `read_plans` what of which files is read, `forms_given` the rows as they are asked for.
"""

from receiver.spark.source.datasource import TsFileSource, register

__all__ = ["TsFileSource", "register"]
