-- Columns of messages. Rows that an older version wrote have NULL in them, and their message as JSON alone.
ALTER TABLE {table}
  ADD COLUMN shard_id       INT NOT NULL DEFAULT 0, -- which relay may claim the row, where relays divide shards
  ADD COLUMN exchange_name  TEXT,
  ADD COLUMN routing_key    TEXT,
  ADD COLUMN event_type     TEXT,
  ADD COLUMN aggregate_type TEXT,
  ADD COLUMN aggregate_id   TEXT,
  ADD COLUMN lock_time      BIGINT,                 -- when the relay of owner claimed the row
  ADD COLUMN lock_until     BIGINT,                 -- when that claim ends; NULL while no relay holds the row
  ADD COLUMN sent_at        BIGINT,                 -- when the broker had the message, or the coordinator a verdict
  ADD COLUMN updated_at     BIGINT;
