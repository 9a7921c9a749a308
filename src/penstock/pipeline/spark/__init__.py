"""The cloud lane: the same pipeline on Spark, and a Spark source for everything else."""
