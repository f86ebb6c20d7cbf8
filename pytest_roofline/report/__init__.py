"""What a run or a check found, for people and for programs; each form a module."""
