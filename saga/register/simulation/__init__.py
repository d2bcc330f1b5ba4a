"""The structural simulation of working lives."""
