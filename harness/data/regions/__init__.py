"""Region features: read from the files that users hold, or cut by boxes from a backbone's map, and kept in one cache.

`harness.data.regions.cache.prepare_regions` is the way in, and gives `harness.data.regions.features.RegionFeatures`.
"""
