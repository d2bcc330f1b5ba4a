"""What is shown: pages, charts and the texts of numbers. No statistic is computed here."""
