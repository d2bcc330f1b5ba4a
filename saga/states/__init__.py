"""What else a year is made of: work, place, family and exits along a path."""
