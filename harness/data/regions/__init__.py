"""Region features: read from files, or pooled by boxes from a backbone's feature map, and cached.

The entry point is `harness.data.regions.cache.prepare_regions`, which gives a
`harness.data.regions.features.RegionFeatures`.
"""
