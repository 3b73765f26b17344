-- The inbox of msghandler's consumers, for MySQL and MariaDB: one row for each message whose effect has committed. Keys
-- are binary: a text column would take Order:7 and order:7 for the same. All times are milliseconds since 1970, by this
-- database's clock.
CREATE TABLE IF NOT EXISTS {table} (
  consumer     VARBINARY(101) NOT NULL,
  message      VARBINARY(512) NOT NULL COMMENT 'PRODUCER/ID',
  routing_key  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'this column and the next are for people',
  event_type   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  created_at   BIGINT NOT NULL COMMENT 'when the effect wrote the row; the purge counts from here',
  -- A column holds one byte more than its rule allows, because a session without a strict sql_mode cuts a value before a rule
  -- is checked: two messages would be one.
  CONSTRAINT {index}_key CHECK (LENGTH(consumer) <= 100 AND LENGTH(message) <= 511),
  PRIMARY KEY (consumer, message),
  KEY {index}_created (consumer, created_at)
) ENGINE=InnoDB;
