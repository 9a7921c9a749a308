"""Why Spark does not start, or a query stops: each with a code of its own."""

from penstock.pipeline.refusals import PipelineRefused
from penstock.vocabulary.errors import PenstockError


class SparkMissing(PipelineRefused):
    """PySpark is not installed, or not in a version that works."""

    code = "spark-missing"


class JavaMissing(PipelineRefused):
    """There is no Java that Spark runs on."""

    code = "java-missing"


class JarsMissing(PipelineRefused):
    """Jars that this pipeline needs are not to be had."""

    code = "jars-missing"


class SessionFailed(PipelineRefused):
    """Spark did not start; the text is what it said."""

    code = "session-failed"


class QueryFailed(PenstockError):
    """Spark ended the query; the text is what Spark said."""

    code = "query-failed"


class KafkaMissing(PipelineRefused):
    """The Python library for Kafka is not installed."""

    code = "kafka-missing"
