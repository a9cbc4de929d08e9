"""Sub-commands of `cail`."""
