"""What tests share: slow twins in NumPy, tiny data and runs, servers and folders as they would be found."""
