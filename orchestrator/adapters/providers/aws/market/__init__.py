"""What AWS sells: types, prices, quotas and images, live or from the dated snapshot."""
