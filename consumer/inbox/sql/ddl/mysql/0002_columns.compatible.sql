-- What the message was, for people who read the inbox. Rows that an older version wrote have NULL there. MySQL has no
-- ADD COLUMN IF NOT EXISTS, so the step looks first whether an interrupted migration has taken it.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
  WHERE table_schema = {schema} AND table_name = '{index}' AND column_name = 'routing_key');
SET @step = IF(@missing, 'ALTER TABLE {table}
  ADD COLUMN routing_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  ADD COLUMN event_type  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
