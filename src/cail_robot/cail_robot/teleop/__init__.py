"""What a person steers an arm with."""

INPUTS = ("keyboard", "gamepad", "spacemouse", "joy_topic", "spacenav_topic", "scripted")
"""Of `--input`; launch files read it too, with a Python that may lack what cail needs."""
