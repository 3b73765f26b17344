-- Columns of messages. Rows that an older version wrote have NULL in them, and their message as JSON alone. MySQL has no
-- ADD COLUMN IF NOT EXISTS, so the step looks first whether an interrupted migration has taken it.
-- shard_id: which relay may claim the row, where relays divide shards. lock_time: when the relay of owner claimed the
-- row. lock_until: when that claim ends; NULL while no relay holds the row. sent_at: when the broker had the message, or
-- the coordinator a verdict.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
  WHERE table_schema = {schema} AND table_name = '{index}' AND column_name = 'shard_id');
SET @step = IF(@missing, 'ALTER TABLE {table}
  ADD COLUMN shard_id       INT NOT NULL DEFAULT 0,
  ADD COLUMN exchange_name  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  ADD COLUMN routing_key    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  ADD COLUMN event_type     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  ADD COLUMN aggregate_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  ADD COLUMN aggregate_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  ADD COLUMN lock_time      BIGINT,
  ADD COLUMN lock_until     BIGINT,
  ADD COLUMN sent_at        BIGINT,
  ADD COLUMN updated_at     BIGINT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
