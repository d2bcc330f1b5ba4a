"""From simulated paths of persons to tables of a population that may be published."""
