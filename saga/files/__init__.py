"""Files that are written whole or not at all: tables with provenance, HTML pages."""
