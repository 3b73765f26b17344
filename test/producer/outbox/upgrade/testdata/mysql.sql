-- Business markers and the local message table of msghandler's producers, for MySQL and MariaDB. Ids are binary: a text
-- column would take Order:7 and order:7 for the same. All times are milliseconds since 1970, by this database's clock.
CREATE TABLE IF NOT EXISTS msghandler_markers (
  producer     VARBINARY(100) NOT NULL,
  id           VARBINARY(255) NOT NULL,
  verdict      SMALLINT NOT NULL COMMENT '2 committed, 3 rolled back: a tombstone',
  created_at   BIGINT NOT NULL,
  cleaned_at   BIGINT COMMENT 'since when nobody asks any more; the purge takes it from here',
  state        SMALLINT NOT NULL DEFAULT 0 COMMENT 'of the message: 0 none, 1 waiting, 2 handed over, 3 sent, 4 failed',
  due_at       BIGINT COMMENT 'when a relay is to send it; while it has an owner: until when it is locked',
  owner        VARBINARY(255) COMMENT 'the claim that a relay holds it by',
  claims       INT NOT NULL DEFAULT 0 COMMENT 'how often it was claimed: above 1 it may have been sent before',
  attempts     INT NOT NULL DEFAULT 0 COMMENT 'how often it was refused',
  last_error   TEXT CHARACTER SET utf8mb4,
  message      MEDIUMTEXT CHARACTER SET utf8mb4 COMMENT 'what is to be sent, as JSON, but for its body',
  body         LONGBLOB,
  PRIMARY KEY (producer, id),
  KEY msghandler_markers_due (producer, state, due_at),
  KEY msghandler_markers_cleaned (producer, cleaned_at)
) ENGINE=InnoDB;
