"""The tests, in the folders of the package; what they share is in `tests.support`."""
