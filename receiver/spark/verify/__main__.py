"""`python -m receiver.spark.verify`; the script that `spark-submit` is given."""

import sys

from receiver.spark.verify import main

sys.exit(main())
