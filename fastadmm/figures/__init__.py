"""Progress and numbers as they are shown: what runs and reports tell with."""
