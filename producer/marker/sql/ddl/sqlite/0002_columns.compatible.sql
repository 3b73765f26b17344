-- Columns of messages. Rows that an older version wrote have NULL in them, and their message as JSON alone.
-- shard_id: which relay may claim the row, where relays divide shards. lock_time: when the relay of owner claimed the
-- row. lock_until: when that claim ends; NULL while no relay holds the row. sent_at: when the broker had the message, or
-- the coordinator a verdict.
ALTER TABLE {table} ADD COLUMN shard_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {table} ADD COLUMN exchange_name TEXT;
ALTER TABLE {table} ADD COLUMN routing_key TEXT;
ALTER TABLE {table} ADD COLUMN event_type TEXT;
ALTER TABLE {table} ADD COLUMN aggregate_type TEXT;
ALTER TABLE {table} ADD COLUMN aggregate_id TEXT;
ALTER TABLE {table} ADD COLUMN lock_time INTEGER;
ALTER TABLE {table} ADD COLUMN lock_until INTEGER;
ALTER TABLE {table} ADD COLUMN sent_at INTEGER;
ALTER TABLE {table} ADD COLUMN updated_at INTEGER;
