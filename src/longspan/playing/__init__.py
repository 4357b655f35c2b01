"""A trained model in one page that improvises: packed weights, the scripts that run them, and the page itself."""
