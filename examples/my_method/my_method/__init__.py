"""A method of `cail train`."""
