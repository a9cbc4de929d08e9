"""Stack two cups: a task over an arm's topics."""
