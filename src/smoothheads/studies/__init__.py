"""Studies: many trainings and certifications as one table, the paper's experiments among them."""
