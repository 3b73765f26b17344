-- The inbox of msghandler's consumers: one row for each message whose effect has committed. All times are milliseconds
-- since 1970.
CREATE TABLE {table} (
  consumer     TEXT NOT NULL,
  message      BLOB NOT NULL,               -- PRODUCER/ID
  routing_key  TEXT,                        -- this column and the next are for people
  event_type   TEXT,
  created_at   INTEGER NOT NULL,            -- when the effect's transaction wrote the row; the purge counts from here
  -- A text is never equal to a BLOB: the second copy of such a message would be handled.
  CONSTRAINT {index}_key CHECK (typeof(consumer) = 'text' AND typeof(message) = 'blob' AND LENGTH(message) <= 511),
  PRIMARY KEY (consumer, message)
);
CREATE INDEX {index}_created ON {table} (consumer, created_at);
