-- The inbox of msghandler's consumers: one row for each message whose effect has committed. All times are milliseconds
-- since 1970, by this database's clock.
CREATE TABLE msghandler_inbox (
  consumer     TEXT COLLATE "C" NOT NULL,
  message      BYTEA NOT NULL,              -- PRODUCER/ID
  created_at   BIGINT NOT NULL              -- when the effect's transaction wrote it; the purge counts from here
);
ALTER TABLE msghandler_inbox ADD PRIMARY KEY (consumer, message);
CREATE INDEX msghandler_inbox_created ON msghandler_inbox (consumer, created_at);
