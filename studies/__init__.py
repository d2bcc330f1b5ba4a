"""Studies: one question per file, with its command and the page it writes; not in the wheel."""
