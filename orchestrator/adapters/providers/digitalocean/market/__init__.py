"""A site's offers: sizes, images and prices, live or from the dated snapshot. Nothing here creates anything."""
