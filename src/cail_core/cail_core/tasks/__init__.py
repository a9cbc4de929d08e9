"""Tasks, defined once in NumPy: observation, reward, success. Simulators, ROS nodes and learners all call these."""

from cail_core.tasks.base import BatchEnv, Demonstrator, Policy, RestartableEnv, Step, Task, TaskSpec, get_task, task_names

__all__ = ["BatchEnv", "Demonstrator", "Policy", "RestartableEnv", "Step", "Task", "TaskSpec", "get_task", "task_names"]
