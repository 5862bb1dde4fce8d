"""Measurements of hookonce against what it is compared with, in one run on one machine: `python -m benchmarks`."""
