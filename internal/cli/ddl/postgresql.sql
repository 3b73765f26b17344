-- Business markers of a producer in any language: one row for each transaction, which the transaction writes first. All times
-- are milliseconds since 1970, by this database's clock. The SDK in Go makes a table of its own, which holds messages too.
CREATE TABLE {table} (
  producer   TEXT COLLATE "C" NOT NULL,
  id         BYTEA NOT NULL,
  verdict    SMALLINT NOT NULL, -- 2 committed, 3 rolled back: a tombstone
  created_at BIGINT NOT NULL,
  cleaned_at BIGINT,            -- from when the purge counts: no coordinator asks any more
  CONSTRAINT {index}_key CHECK (OCTET_LENGTH(producer) <= 100 AND OCTET_LENGTH(id) <= 255),
  CONSTRAINT {index}_verdict CHECK (verdict IN (2, 3)),
  PRIMARY KEY (producer, id)
);
CREATE INDEX {index}_cleaned ON {table} (producer, cleaned_at) WHERE cleaned_at IS NOT NULL;
