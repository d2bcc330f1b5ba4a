"""Income tax on annual labour earnings: Swedish rules by year, and the paper's rule."""
