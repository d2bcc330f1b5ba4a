"""Products for all persons of a source of any size, computed in partitions."""
