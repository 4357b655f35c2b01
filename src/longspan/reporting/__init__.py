"""Reporting: plain, testable values, and the pages and tables that show them."""
