"""Studies: one question per file. Library, command line and the page it writes; not part of the wheel."""
