"""The proof: a Spark job that reads what is loaded and says whether it is what was sent."""
