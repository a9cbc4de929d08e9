"""One self-contained HTML page that says what a run learned, whom it trusted and how good its policy is."""
