"""Fixtures that several test files share."""

from boxes import box, shared

__all__ = ["box", "shared"]
