"""The durable journal: appended to, synced, cut off where a crash cut it, shortened by snapshots, executed again."""
