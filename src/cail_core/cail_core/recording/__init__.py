"""Recordings: MCAP bags of the arm's topics, and the demonstrations that are made from them."""
