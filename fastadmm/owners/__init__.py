"""The second system: owners of rows answer differentially private gradient queries."""
