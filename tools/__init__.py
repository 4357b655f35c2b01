"""Programs for those who work on longspan: the documentation site, its pictures, and wheels."""
