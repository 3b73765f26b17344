-- The inbox of msghandler's consumers: one row for each message whose effect has committed. All times are milliseconds
-- since 1970, by this database's clock.
CREATE TABLE {table} (
  consumer     TEXT COLLATE "C" NOT NULL,
  message      BYTEA NOT NULL,              -- PRODUCER/ID
  created_at   BIGINT NOT NULL              -- when the effect's transaction wrote it; the purge counts from here
);
ALTER TABLE {table} ADD PRIMARY KEY (consumer, message);
CREATE INDEX {index}_created ON {table} (consumer, created_at);
