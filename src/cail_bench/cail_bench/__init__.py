"""Benchmarks behind `cail bench`: each prints ratios and leaves a CSV with the command, versions and machine that made it."""
