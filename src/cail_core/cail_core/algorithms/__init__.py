"""Imitation learning: inner learners, outer losses, the bi-level step, and the methods made of them."""

METHODS = ("cail", "cail-paper", "cail-gail", "cail-bc", "cail-hybrid", "airl", "gail", "bc",
           "2iwil", "ic-gail", "t-rex", "d-rex", "ssrr", "rinse", "dwbc")
"""The methods by name; each has its settings in config/<method>.yaml."""
