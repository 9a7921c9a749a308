"""Why a pipeline does not run, or stops: each with a code of its own and what to do next."""

from penstock.vocabulary.errors import PenstockError, UsageError


class PipelineRefused(PenstockError):
    """The pipeline cannot go on without a decision of its owner; nothing was written."""

    code = "pipeline-refused"


class BadPipelineFile(UsageError):
    """The pipeline file has something wrong; the text names file, table and key."""

    code = "bad-pipeline-file"


class PipelineRunning(PipelineRefused):
    """Another run of this pipeline holds its checkpoint."""

    code = "pipeline-running"


class TableLocked(PipelineRefused):
    """Another writer holds the table."""

    code = "table-locked"


class TableSchemaDiffers(PipelineRefused):
    """The table exists with other columns than the dataset has."""

    code = "table-schema-differs"


class CheckpointMissing(PipelineRefused):
    """The table holds batches of this pipeline, and the checkpoint knows nothing of them."""

    code = "checkpoint-missing"


class CheckpointBehind(PipelineRefused):
    """The table holds newer batches than the checkpoint."""

    code = "checkpoint-behind"


class CheckpointAhead(PipelineRefused):
    """The checkpoint says that batches are stored which the table does not hold."""

    code = "checkpoint-ahead"


class CheckpointForeign(PipelineRefused):
    """The checkpoint belongs to another pipeline, source or table."""

    code = "checkpoint-foreign"


class RangesDiffer(PipelineRefused):
    """A batch came again with other source ranges than its ledger entry has."""

    code = "ranges-differ"


class FixFailed(PipelineRefused):
    """The function that mends readings in quarantine failed, or gave what is no body."""

    code = "fix-failed"


class DatasetFailed(PipelineRefused):
    """A function of a dataset failed: the batch in hand is not stored, and comes again."""

    code = "dataset-failed"


class SourceDiffers(PipelineRefused):
    """The topic does not hold what comes after the checkpoint: it was trimmed or replaced."""

    code = "source-differs"


class ReaderTaken(PipelineRefused):
    """The subscription is the reader of another pipeline."""

    code = "reader-taken"


class CountsDiffer(PenstockError):
    """Read is not stored + quarantined + duplicate: rows would be lost or made up."""

    code = "counts-differ"
