"""The revisions, one a file, in order."""
