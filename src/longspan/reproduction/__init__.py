"""The paper's two tables, reproduced: its numbers and spaces, each cell as a study, its claims, and the pages."""
