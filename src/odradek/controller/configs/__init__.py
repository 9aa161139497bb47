"""What is decided about settings: plans of changes, descriptions, those that change at run time."""
