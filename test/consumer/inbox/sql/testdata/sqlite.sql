-- The inbox of msghandler's consumers: one row for each message whose effect has committed. All times are milliseconds
-- since 1970.
CREATE TABLE msghandler_inbox (
  consumer     TEXT NOT NULL,
  message      BLOB NOT NULL,               -- PRODUCER/ID
  created_at   INTEGER NOT NULL,            -- when the effect's transaction wrote it; the purge counts from here
  PRIMARY KEY (consumer, message)
);
CREATE INDEX msghandler_inbox_created ON msghandler_inbox (consumer, created_at);
