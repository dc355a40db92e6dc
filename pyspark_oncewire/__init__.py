"""Where Spark finds the format `oncewire` by itself: it looks for packages that are called `pyspark_*`.

So no session needs `bridges.spark.register`, but for the format's other name.
"""

from bridges.spark.data_source import OncewireDataSource as DefaultSource

__all__ = ["DefaultSource"]
