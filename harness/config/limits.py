"""The largest numbers that options and settings may have.

Far above every sensible value, and low enough that a typing error is refused before it fills the memory.
"""

MAX_SEED = 2**31 - 1
MAX_SEEDS = 1000
MAX_BEAM = 256
MAX_TOKENS = 1000
MAX_REGIONS = 4096
MAX_CHANNELS = 65_536
MAX_WORDS = 1_000_000
MAX_SIDE = 4096
MAX_PROCESSES = 1024
MAX_BATCH = 65_536
MAX_COUNT = 1_000_000
MAX_STEPS = 10**9
MAX_ENERGY_S = 3600
MAX_RATE = 100.0
MAX_MEMORY_GB = 1_000_000
MAX_HOURS = 8_760
