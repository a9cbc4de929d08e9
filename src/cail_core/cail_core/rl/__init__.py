"""Reinforcement learning: one readable file per algorithm."""
