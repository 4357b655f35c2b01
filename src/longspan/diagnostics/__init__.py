"""What is wrong with a run and what to do: model, course, data and loss examined, and findings named."""
