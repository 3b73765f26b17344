-- The inbox of msghandler's consumers: one row for each message whose effect has committed. All times are milliseconds
-- since 1970.
CREATE TABLE {table} (
  consumer     TEXT NOT NULL,
  message      BLOB NOT NULL,               -- PRODUCER/ID
  created_at   INTEGER NOT NULL,            -- when the effect's transaction wrote it; the purge counts from here
  PRIMARY KEY (consumer, message)
);
CREATE INDEX {index}_created ON {table} (consumer, created_at);
