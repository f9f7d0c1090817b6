"""kubectl commands that annotate pods made before usage was recorded, and PrimeHub's history."""
