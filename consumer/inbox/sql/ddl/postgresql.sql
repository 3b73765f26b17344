-- The inbox of msghandler's consumers: one row for each message whose effect has committed. All times are milliseconds
-- since 1970, by this database's clock.
CREATE TABLE {table} (
  consumer     TEXT COLLATE "C" NOT NULL,
  message      BYTEA NOT NULL,              -- PRODUCER/ID
  routing_key  TEXT,                        -- this column and the next are for people
  event_type   TEXT,
  created_at   BIGINT NOT NULL,             -- when the effect's transaction wrote the row; the purge counts from here
  CONSTRAINT {index}_key CHECK (OCTET_LENGTH(consumer) <= 100 AND OCTET_LENGTH(message) <= 511),
  PRIMARY KEY (consumer, message)
);
CREATE INDEX {index}_created ON {table} (consumer, created_at);
