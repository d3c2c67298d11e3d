"""What AWS allows, sells and costs, where moto falls short of it."""
