"""What several test files use: runs of the tool and of pytest, and inputs in other tools' formats."""
