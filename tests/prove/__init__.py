"""A campaign on generated problems: nothing that is printed as proved may be false. See ``make prove``."""
