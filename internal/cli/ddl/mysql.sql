-- Business markers of a producer in any language: one row for each transaction, which the transaction writes first. Ids are
-- binary: a text column would take Order:7 and order:7 for the same. All times are milliseconds since 1970, by this
-- database's clock. The SDK in Go makes a table of its own, which holds messages too.
CREATE TABLE {table} (
  -- A column holds one byte more than its rule allows: a session without a strict sql_mode cuts before the rule is checked.
  producer   VARBINARY(101) NOT NULL,
  id         VARBINARY(256) NOT NULL,
  verdict    SMALLINT NOT NULL COMMENT '2 committed, 3 rolled back: a tombstone',
  created_at BIGINT NOT NULL,
  cleaned_at BIGINT COMMENT 'from when the purge counts: no coordinator asks any more',
  CONSTRAINT {index}_key CHECK (LENGTH(producer) <= 100 AND LENGTH(id) <= 255),
  CONSTRAINT {index}_verdict CHECK (verdict IN (2, 3)),
  PRIMARY KEY (producer, id),
  KEY {index}_cleaned (producer, cleaned_at)
) ENGINE=InnoDB;
