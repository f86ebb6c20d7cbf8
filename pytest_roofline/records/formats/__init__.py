"""The formats of records, a module for each producer."""
