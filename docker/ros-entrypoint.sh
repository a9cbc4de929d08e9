#!/bin/bash
# What the image is started with runs in the workspace.
set -e
. /opt/ros/jazzy/setup.bash
. /ws/install/setup.bash
exec "$@"
