"""Scoring of everybody in files of any size: partitions, workers, exactly-once commits."""
