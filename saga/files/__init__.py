"""Files that are written completely or not at all: tables with provenance, HTML pages."""
