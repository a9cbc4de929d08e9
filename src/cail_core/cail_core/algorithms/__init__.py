"""Imitation learning: inner learners, outer losses, the bi-level step, and the methods made of them."""
