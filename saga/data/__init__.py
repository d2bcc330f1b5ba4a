"""Reading and checking of panels; splits, forecast origins and groups of persons."""
