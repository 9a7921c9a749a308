"""What survives a crash: records in groups in segments, snapshots, recovery, compaction."""
