"""Sub-commands of `cail` that need the simulator."""
