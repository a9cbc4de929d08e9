"""Tasks, defined once in NumPy: observation, reward, success. Simulators, ROS nodes and learners all call these."""

from cail_core.tasks.base import (
    Axis,
    BatchEnv,
    Demonstrator,
    NoEnvironment,
    Policy,
    RestartableEnv,
    Step,
    Task,
    TaskSpec,
    Thing,
    View,
    get_task,
    task_names,
)

__all__ = [
    "Axis",
    "BatchEnv",
    "Demonstrator",
    "NoEnvironment",
    "Policy",
    "RestartableEnv",
    "Step",
    "Task",
    "TaskSpec",
    "Thing",
    "View",
    "get_task",
    "task_names",
]
