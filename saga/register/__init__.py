"""The structural register: a documented simulation of working lives."""
