"""`df.write.format("tsfile")`: rows of a DataFrame as one load of a receiver.

The driver opens a write there; each task sorts its rows, cuts them by storage group and partition,
and sends TsFiles of them; the driver's commit names those that are meant. See docs/spark.md.
"""
