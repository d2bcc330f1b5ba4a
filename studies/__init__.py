"""Studies: one question a file. Library, command line and the page it writes; not part of the wheel."""
