"""Income tax on annual labour earnings: Swedish rules by year, reforms, and the paper's rule."""
