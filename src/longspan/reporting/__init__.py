"""Reporting: values first, each testable as it is, then the pages and tables that show them."""
