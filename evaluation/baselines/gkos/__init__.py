"""The process of Guvenen, Karahan, Ozkan and Song (2021), estimated."""
